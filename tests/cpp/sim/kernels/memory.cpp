// Memory instructions that the compiler does not choose by itself, each asked for by name.
#include "device.h"

typedef u32 u32x2 __attribute__((ext_vector_type(2)));
typedef u32 u32x3 __attribute__((ext_vector_type(3)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef short s16x4 __attribute__((ext_vector_type(4)));
typedef short s16x8 __attribute__((ext_vector_type(8)));

#if defined(__GFX12__)
#define WAIT_LOAD "\ns_wait_loadcnt 0x0"
#define WAIT_STORE "\ns_wait_storecnt 0x0"
#define WAIT_LDS "\ns_wait_dscnt 0x0"
#define WAIT_SCALAR "\ns_wait_kmcnt 0x0"
#define RETURNS " th:TH_ATOMIC_RETURN"
#define NO_OFFSET "null"
#elif defined(__GFX11__) || defined(__GFX10__)
#define WAIT_LOAD "\ns_waitcnt vmcnt(0)"
#define WAIT_STORE "\ns_waitcnt_vscnt null, 0x0"
#define WAIT_LDS "\ns_waitcnt lgkmcnt(0)"
#define WAIT_SCALAR WAIT_LDS
#define RETURNS " glc"
#define NO_OFFSET "0"
#else
#define WAIT_LOAD "\ns_waitcnt vmcnt(0)"
#define WAIT_STORE WAIT_LOAD
#define WAIT_LDS "\ns_waitcnt lgkmcnt(0)"
#define WAIT_SCALAR WAIT_LDS
#if defined(__gfx90a__)
#define RETURNS " glc"
#else
#define RETURNS " sc0"
#endif
#define NO_OFFSET "0"
#endif
#if defined(__GFX9__) || defined(__GFX10__)
#define NAME(old, gfx11) old
#else
#define NAME(old, gfx11) gfx11
#endif
#if defined(__GFX9__)
#define FORMAT_16_16_SINT "[BUF_DATA_FORMAT_16_16,BUF_NUM_FORMAT_SINT]"
#else
#define FORMAT_16_16_SINT "[BUF_FMT_16_16_SINT]"
#endif

static inline u32 lane() { return localX(); }
static inline u32x4 resource(const void* base, u32 stride, u32 records, u32 word1, u32 word3) {
  u64 p = (u64)base;
  return (u32x4){(u32)__builtin_amdgcn_readfirstlane((int)p),
                 (u32)__builtin_amdgcn_readfirstlane((int)((u32)(p >> 32) & 0xffff)) | stride << 16 | word1, records,
                 word3};
}

// Buffers. out: 64 x 4 dwords of loads, checked by the host; words are the resource's last dword, chosen by the host.
KERNEL bufferRaw(const u32* in, u32* out, u32* target, u32 bytes, u32 word3, u32 scalar) {
  u32x4 r = resource(in, 0, bytes, 0, word3), w = resource(target, 0, bytes, 0, word3);
  u32x4 v;
  u32 at = lane() * 4;
  asm volatile("buffer_load_" NAME("dwordx4", "b128") " %0, %1, %2, %3 offen offset:8" WAIT_LOAD
               : "=&v"(v)
               : "v"(at), "s"(r), "s"(scalar)
               : "memory");
  ((u32x4*)out)[lane()] = v;
  u32x2 data = {lane(), lane() + 100};
  u32 to = lane() * 8;
  asm volatile("buffer_store_" NAME("dwordx2", "b64") " %0, %1, %2, %3 offen" WAIT_STORE ::"v"(data), "v"(to), "s"(w),
               "s"(scalar)
               : "memory");
}
// Index and offset from registers: two dwords at (index, offset) with the offset past the stride in the upper lanes.
KERNEL bufferStructured(const u32* in, u32* out, u32 stride, u32 records, u32 word1, u32 word3) {
  u32x4 r = resource(in, stride, records, word1, word3);
  u32x2 at = {lane() / 4, lane() % 4 * 4}, v;
  asm volatile("buffer_load_" NAME("dwordx2", "b64") " %0, %1, %2, " NO_OFFSET " idxen offen" WAIT_LOAD
               : "=&v"(v)
               : "v"(at), "s"(r)
               : "memory");
  ((u32x2*)out)[lane()] = v;
}
KERNEL bufferTyped(const u32* in, u32* out, u32* target, u32 stride, u32 word3) {
  u32x4 r = resource(in, stride, 64, 0, word3), w = resource(target, stride, 64, 0, word3);
  u32x4 v;
  u32 index = lane();
  asm volatile("buffer_load_format_xyzw %0, %1, %2, " NO_OFFSET " idxen" WAIT_LOAD
               : "=&v"(v)
               : "v"(index), "s"(r)
               : "memory");
  ((u32x4*)out)[lane()] = v;
  asm volatile("buffer_store_format_xyzw %0, %1, %2, " NO_OFFSET " idxen" WAIT_STORE ::"v"(v), "v"(index), "s"(w)
               : "memory");
}
KERNEL bufferTypedHalf(const u32* in, u32* out, u32* target, u32 stride, u32 word3) {
  u32x4 r = resource(in, stride, 64, 0, word3), w = resource(target, stride, 64, 0, word3);
  u32x2 v;
  u32 index = lane();
  asm volatile("buffer_load_" NAME("format_d16_xyzw", "d16_format_xyzw") " %0, %1, %2, " NO_OFFSET " idxen" WAIT_LOAD
               : "=&v"(v)
               : "v"(index), "s"(r)
               : "memory");
  ((u32x2*)out)[lane()] = v;
  asm volatile("buffer_store_" NAME("format_d16_xyzw", "d16_format_xyzw") " %0, %1, %2, " NO_OFFSET
                                                                          " idxen" WAIT_STORE ::"v"(v),
               "v"(index), "s"(w)
               : "memory");
}
// The instruction names the format: 16_16_SINT.
KERNEL tbufferLoad(const u32* in, u32* out, u32 word3) {
  u32x4 r = resource(in, 4, 64, 0, word3);
  u32x2 v;
  u32 index = lane();
  asm volatile("tbuffer_load_format_xy %0, %1, %2, " NO_OFFSET " format:" FORMAT_16_16_SINT " idxen" WAIT_LOAD
               : "=&v"(v)
               : "v"(index), "s"(r)
               : "memory");
  ((u32x2*)out)[lane()] = v;
}
KERNEL scalarBuffer(const u32* in, u32* out, u32 bytes) {
  u32x4 r = resource(in, 0, bytes, 0, 0), v;
  u32 offset = 8;
  asm volatile("s_buffer_load_" NAME("dwordx4", "b128") " %0, %1, %2" WAIT_SCALAR
               : "=&s"(v)
               : "s"(r), "s"(offset)
               : "memory");
  for (u32 i = 0; i < 4; ++i) out[i] = v[i];
}
#if defined(__GFX12__)
KERNEL scalarSmall(const u32* in, u32* out) {
  u32 v[4];
  asm volatile("s_load_u8 %0, %4, 1\ns_load_i8 %1, %4, 3\ns_load_u16 %2, %4, 2\ns_load_i16 %3, %4, 6" WAIT_SCALAR
               : "=&s"(v[0]), "=&s"(v[1]), "=&s"(v[2]), "=&s"(v[3])
               : "s"(in)
               : "memory");
  asm volatile(
      "s_prefetch_data %0, 0, null, 3\ns_prefetch_inst_pc_rel 0, null, 1\nglobal_inv scope:SCOPE_DEV\nglobal_wbinv "
      "scope:SCOPE_SYS" ::"s"(in)
      : "memory");
  for (u32 i = 0; i < 4; ++i) out[i] = v[i];
}
#endif

// LDS. One array; the asm addresses it from 0 upwards.
SHARED u32 lds[2048];
static inline void fill() {
  for (u32 i = lane(); i < 2048; i += groupSizeX()) lds[i] = i * 0x01010101u + 0x100;
  barrier();
}
KERNEL ldsSpecial(u32* out) {
  fill();
  u32 base = (u32)(u64)&lds[0] + lane() * 16, v;
  u32x2 v2;
  u32x4 v4;
  u32* o = out + lane() * 16;
  asm volatile("ds_mskor_rtn_b32 %0, %1, %2, %3 offset:0" WAIT_LDS
               : "=&v"(v)
               : "v"(base), "v"(0xff00u), "v"(0x1200u)
               : "memory");
  o[0] = v;
#if !defined(__GFX12__)
  asm volatile("ds_wrap_rtn_b32 %0, %1, %2, %3 offset:4" WAIT_LDS
               : "=&v"(v)
               : "v"(base), "v"(0x20000000u), "v"(5u)
               : "memory");
#else
  v = 0;
#endif
  o[1] = v;
  asm volatile("ds_" NAME("wrxchg2_rtn_b32", "storexchg_2addr_rtn_b32") " %0, %1, %2, %3 offset0:2 offset1:3" WAIT_LDS
               : "=&v"(v2)
               : "v"(base), "v"(7u), "v"(8u)
               : "memory");
  o[2] = v2.x, o[3] = v2.y;
  u32x2 pair = {0x80000005u, 6u};
  asm volatile("ds_condxchg32_rtn_b64 %0, %1, %2" WAIT_LDS : "=&v"(v2) : "v"(base), "v"(pair) : "memory");
  o[4] = v2.x, o[5] = v2.y;
  asm volatile("ds_" NAME("read_b128", "load_b128") " %0, %1" WAIT_LDS : "=&v"(v4) : "v"(base) : "memory");
  for (u32 i = 0; i < 4; ++i) o[6 + i] = v4[i];
  u32x3 v3;
  asm volatile("ds_" NAME("read_b96", "load_b96") " %0, %1 offset:4" WAIT_LDS : "=&v"(v3) : "v"(base) : "memory");
  for (u32 i = 0; i < 3; ++i) o[10 + i] = v3[i];
  float one = 1.0f, three = 3.0f;
  asm volatile("ds_" NAME("write_b32", "store_b32") " %0, %1" WAIT_LDS ::"v"(base), "v"(one) : "memory");
#if defined(__GFX12__)
  o[13] = 0x3f800000u;
#elif defined(__GFX11__)
  asm volatile("ds_cmpstore_rtn_f32 %0, %1, %2, %3" WAIT_LDS : "=&v"(v) : "v"(base), "v"(three), "v"(one) : "memory");
  o[13] = v;
#else
  asm volatile("ds_cmpst_rtn_f32 %0, %1, %2, %3" WAIT_LDS : "=&v"(v) : "v"(base), "v"(one), "v"(three) : "memory");
  o[13] = v;
#endif
  asm volatile("ds_" NAME("read_u8_d16_hi", "load_u8_d16_hi") " %0, %1 offset:9" WAIT_LDS
               : "=&v"(v)
               : "v"(base), "0"(0xabcdu)
               : "memory");
  o[14] = v;
  asm volatile("ds_" NAME("read2st64_b32", "load_2addr_stride64_b32") " %0, %1 offset0:8 offset1:16" WAIT_LDS
               : "=&v"(v2)
               : "v"(base)
               : "memory");
  o[15] = v2.x ^ v2.y;
}
KERNEL ldsCounts(u32* out) {
  fill();
  u32 v = 0, m0 = (u32)(u64)&lds[0];
  if (lane() % 3 == 0) asm volatile("s_mov_b32 m0, %1\nds_append %0 offset:4" WAIT_LDS : "=&v"(v) : "s"(m0) : "memory");
  out[lane()] = v;
  v = 0;
  if (lane() < 5) asm volatile("s_mov_b32 m0, %1\nds_consume %0 offset:4" WAIT_LDS : "=&v"(v) : "s"(m0) : "memory");
  out[64 + lane()] = v;
  barrier();
  out[128 + lane()] = lds[1];
  asm volatile("s_mov_b32 m0, %0\nds_" NAME("write_addtid_b32", "store_addtid_b32") " %1 offset:256" WAIT_LDS ::"s"(m0),
               "v"(lane() * 3)
               : "memory");
  asm volatile("s_mov_b32 m0, %1\nds_" NAME("read_addtid_b32", "load_addtid_b32") " %0 offset:260" WAIT_LDS
               : "=&v"(v)
               : "s"(m0)
               : "memory");
  out[192 + lane()] = v;
}

// Loads into LDS.
#if defined(__GFX9__)
KERNEL bufferToLds(const u32* in, u32* out, u32 bytes) {
  fill();
  u32x4 r = resource(in, 0, bytes, 0, 0x27000);
  u32 m0 = (u32)(u64)&lds[0], at = (63 - lane()) * 4;
  if (lane() != 5)
    asm volatile("s_mov_b32 m0, %0\nbuffer_load_dword %1, %2, 0 offen offset:64 lds" WAIT_LOAD ::"s"(m0), "v"(at),
                 "s"(r)
                 : "memory");
  barrier();
  out[lane()] = lds[16 + lane()];
  u32 byte = lane();
  asm volatile("s_mov_b32 m0, %0\nbuffer_load_sbyte %1, %2, 0 offen lds" WAIT_LOAD ::"s"(m0), "v"(byte), "s"(r)
               : "memory");
  barrier();
  out[64 + lane()] = lds[lane()];
}
#if !defined(__gfx90a__)
KERNEL globalToLds(const u32* in, u32* out) {
  fill();
  u32 m0 = (u32)(u64)&lds[0];
  const u32* from = in + lane() * 2;
  asm volatile("s_mov_b32 m0, %0\nglobal_load_lds_dword %1, off offset:8" WAIT_LOAD ::"s"(m0), "v"(from) : "memory");
  barrier();
  out[lane()] = lds[2 + lane()];
#if defined(__gfx950__)
  from = in + lane() * 4;
  asm volatile("s_mov_b32 m0, %0\nglobal_load_lds_dwordx4 %1, off" WAIT_LOAD ::"s"(m0), "v"(from) : "memory");
  barrier();
  for (u32 i = 0; i < 4; ++i) out[64 + lane() * 4 + i] = lds[lane() * 4 + i];
  barrier();
  asm volatile("s_mov_b32 m0, %0\nglobal_load_lds_dwordx3 %1, off" WAIT_LOAD ::"s"(m0), "v"(from) : "memory");
  barrier();
  for (u32 i = 0; i < 3; ++i) out[320 + lane() * 3 + i] = lds[lane() * 3 + i];
#endif
}
#endif
KERNEL missingTransferWait(const u32* in, u32* out) {
  u32x4 r = resource(in, 0, 1024, 0, 0x27000);
  u32 m0 = (u32)(u64)&lds[0], at = lane() * 4, v;
  asm volatile("s_mov_b32 m0, %1\nbuffer_load_dword %2, %3, 0 offen lds\nds_read_b32 %0, %2" WAIT_LDS WAIT_LOAD
               : "=&v"(v)
               : "s"(m0), "v"(at), "s"(r)
               : "memory");
  out[lane()] = v;
}
#endif

// Transposing loads: the input is a row-major matrix of 16 columns whose element at (row, column) the host knows.
#if defined(__gfx950__)
KERNEL ldsTranspose(const u32* in, u32* out) {
  for (u32 i = lane(); i < 2048; i += 64) lds[i] = in[i];
  barrier();
  u32 base = (u32)(u64)&lds[0] + lane() * 8, wide = (u32)(u64)&lds[0] + lane() * 12;
  u32x2 a, b, c;
  u32x3 d;
  asm volatile(
      "ds_read_b64_tr_b16 %0, %4\nds_read_b64_tr_b8 %1, %4\nds_read_b64_tr_b4 %2, %4\nds_read_b96_tr_b6 %3, %5" WAIT_LDS
      : "=&v"(a), "=&v"(b), "=&v"(c), "=&v"(d)
      : "v"(base), "v"(wide)
      : "memory");
  ((u32x2*)out)[lane()] = a;
  ((u32x2*)(out + 128))[lane()] = b;
  ((u32x2*)(out + 256))[lane()] = c;
  for (u32 i = 0; i < 3; ++i) out[384 + lane() * 3 + i] = d[i];
}
#endif
#if defined(__GFX12__)
KERNEL globalTranspose(const u32* in, u32* out) {
  const u32* from = in + lane() * 4;
  const u32* narrow = in + ((lane() / 8 * 4 + lane() % 4) * 16 + (lane() & 4 ? 8 : 0)) / 4;
  u32x4 a;
  u32x2 b;
  asm volatile("global_load_tr_b128 %0, %2, off\nglobal_load_tr_b64 %1, %3, off" WAIT_LOAD
               : "=&v"(a), "=&v"(b)
               : "v"(from), "v"(narrow)
               : "memory");
  ((u32x4*)out)[lane()] = a;
  ((u32x2*)(out + 128))[lane()] = b;
}
#endif

// Every integer atomic on memory: lane l of operation k works on cell k * 64 + l; old values go to `old`.
#define ATOMIC32(k, name)                                                 \
  asm volatile("global_atomic_" name " %0, %1, %2, off" RETURNS WAIT_LOAD \
               : "=&v"(v)                                                 \
               : "v"(cells + (k) * 64 + lane()), "v"(data)                \
               : "memory");                                               \
  old[(k) * 64 + lane()] = v;
#define ATOMIC64(k, name)                                                   \
  asm volatile("flat_atomic_" name " %0, %1, %2" RETURNS WAIT_LOAD WAIT_LDS \
               : "=&v"(v)                                                   \
               : "v"(cells + (k) * 64 + lane()), "v"(data)                  \
               : "memory");                                                 \
  old[(k) * 64 + lane()] = v;
KERNEL atomics32(u32* cells, u32* old, const u32* operands) {
  u32 data = operands[lane()], v;
  ATOMIC32(0, NAME("swap", "swap_b32"))
  ATOMIC32(1, NAME("add", "add_u32"))
  ATOMIC32(2, NAME("sub", "sub_u32"))
  ATOMIC32(3, NAME("smin", "min_i32"))
  ATOMIC32(4, NAME("umin", "min_u32"))
  ATOMIC32(5, NAME("smax", "max_i32"))
  ATOMIC32(6, NAME("umax", "max_u32"))
  ATOMIC32(7, NAME("and", "and_b32"))
  ATOMIC32(8, NAME("or", "or_b32"))
  ATOMIC32(9, NAME("xor", "xor_b32"))
  ATOMIC32(10, NAME("inc", "inc_u32"))
  ATOMIC32(11, NAME("dec", "dec_u32"))
}
KERNEL atomics64(u64* cells, u64* old, const u64* operands) {
  u64 data = operands[lane()], v;
  ATOMIC64(0, NAME("swap_x2", "swap_b64"))
  ATOMIC64(1, NAME("add_x2", "add_u64"))
  ATOMIC64(2, NAME("sub_x2", "sub_u64"))
  ATOMIC64(3, NAME("smin_x2", "min_i64"))
  ATOMIC64(4, NAME("umin_x2", "min_u64"))
  ATOMIC64(5, NAME("smax_x2", "max_i64"))
  ATOMIC64(6, NAME("umax_x2", "max_u64"))
  ATOMIC64(7, NAME("and_x2", "and_b64"))
  ATOMIC64(8, NAME("or_x2", "or_b64"))
  ATOMIC64(9, NAME("xor_x2", "xor_b64"))
  ATOMIC64(10, NAME("inc_x2", "inc_u64"))
  ATOMIC64(11, NAME("dec_x2", "dec_u64"))
}
// Through a resource, without return, and compare-and-swap: cells below the bound change.
KERNEL atomicsBuffer(u32* cells, u32 bytes, u32 word3) {
  u32x4 r = resource(cells, 0, bytes, 0, word3);
  u32 at = lane() * 4, data = lane() + 1;
  asm volatile("buffer_atomic_" NAME("add", "add_u32") " %0, %1, %2, " NO_OFFSET " offen" WAIT_STORE ::"v"(data),
               "v"(at), "s"(r)
               : "memory");
  u32x2 swap = {1000 + lane(), lane() % 2 ? 2 * lane() + 1 : 0xffffffffu};  // new value, comparand
  asm volatile("buffer_atomic_" NAME("cmpswap", "cmpswap_b32") " %0, %1, %2, " NO_OFFSET " offen" RETURNS WAIT_LOAD
               : "+v"(swap)
               : "v"(at), "s"(r)
               : "memory");
  cells[64 + lane()] = swap.x;
}
// Float atomics that each chip has, on memory and LDS: results in `cells`, one row of 64 an operation; rows the chip
// lacks are left alone.
KERNEL atomicsFloat(u32* cells, const u32* operands) {
  u32 data = operands[lane()];
  SHARED u32 local[64];
  local[lane()] = 0x40000000u;  // 2.0f
  barrier();
  u32 at = (u32)(u64)&local[lane()];
#if !defined(__GFX10__)
  asm volatile("global_atomic_add_f32 %0, %1, off" WAIT_STORE ::"v"(cells + lane()), "v"(data) : "memory");
#endif
  asm volatile("ds_add_f32 %0, %1" WAIT_LDS ::"v"(at), "v"(data) : "memory");
  cells[64 + lane()] = local[lane()];
  barrier();
#if !defined(__GFX11__) && !defined(__GFX10__)
  asm volatile("global_atomic_pk_add_f16 %0, %1, off" WAIT_STORE ::"v"(cells + 128 + lane()), "v"(data) : "memory");
#endif
#if !defined(__GFX11__) && !defined(__GFX10__) && !defined(__gfx90a__)
  asm volatile("global_atomic_pk_add_bf16 %0, %1, off" WAIT_STORE ::"v"(cells + 192 + lane()), "v"(data) : "memory");
  asm volatile("ds_" NAME("write_b32", "store_b32") " %0, %2\nds_pk_add_f16 %0, %1" WAIT_LDS ::"v"(at), "v"(data),
               "v"(cells[256 + lane()])
               : "memory");
  cells[256 + lane()] = local[lane()];
#endif
#if defined(__GFX10__)
  asm volatile("global_atomic_fmax %0, %1, off" WAIT_STORE ::"v"(cells + 320 + lane()), "v"(data) : "memory");
#elif defined(__GFX11__)
  asm volatile("global_atomic_max_f32 %0, %1, off" WAIT_STORE ::"v"(cells + 320 + lane()), "v"(data) : "memory");
#elif defined(__GFX12__)
  asm volatile("global_atomic_max_num_f32 %0, %1, off" WAIT_STORE ::"v"(cells + 320 + lane()), "v"(data) : "memory");
#else
  u64 wide = (u64)data << 32;  // high half of a double
  asm volatile("global_atomic_add_f64 %0, %1, off" WAIT_STORE ::"v"((u64*)(cells + 384) + lane()), "v"(wide)
               : "memory");
  asm volatile("global_atomic_min_f64 %0, %1, off" WAIT_STORE ::"v"((u64*)(cells + 512) + lane()), "v"(wide)
               : "memory");
#endif
}

// Addresses of every segment form: private memory through a flat pointer, LDS through a flat pointer, unaligned dwords.
KERNEL flatApertures(u32* out, const unsigned char* bytes) {
  volatile u32 mine[8];
  for (u32 i = 0; i < 8; ++i) mine[i] = lane() * 8 + i;
  lds[lane()] = 5000 + lane();
  barrier();
  const u32* choices[3] = {(const u32*)&mine[lane() % 8], (const u32*)&lds[lane()], (const u32*)out};
  out[64 + lane()] = *(const volatile u32*)choices[lane() % 2];
  u32 v;
  asm volatile("global_load_" NAME("dword", "b32") " %0, %1, off" WAIT_LOAD
               : "=&v"(v)
               : "v"(bytes + lane() * 3 + 1)
               : "memory");
  out[128 + lane()] = v;
}
KERNEL misalignedAtomic(char* cells) {
  u32 one = 1;
  asm volatile("global_atomic_" NAME("add", "add_u32") " %0, %1, off" WAIT_STORE ::"v"(cells + lane() * 4 + 2), "v"(one)
               : "memory");
}
