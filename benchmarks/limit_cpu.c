/* Hides AVX-512, AMX and AVX-VNNI from a process: the CPUID instruction answers as on a CPU with AVX2.

   A preloaded library (limit_cpu.py builds and preloads it). Linux lets CPUID fault where the CPU can
   (`cpuid_fault` in /proc/cpuinfo; arch_prctl(2), ARCH_CPUID); the handler below executes it and clears what a CPU with
   AVX2 lacks. So every library of the process takes its AVX2 code, also those that have no option for it.

   Only features are hidden. Speed is that of this CPU when it executes AVX2 code: its caches, ports and clock. XGETBV
   cannot be trapped, and still shows the state of AVX-512; code must test CPUID's bits too, as the manuals demand.
   Until this library is loaded, ld.so has already chosen the C library's string functions: limit_cpu.py has tunables
   for that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { kArchCpuid = 0x1012 }; /* ARCH_CPUID of asm/prctl.h: 0 makes CPUID fault in this thread and those it starts */

static struct sigaction other; /* the program's own handler of SIGSEGV */

static long allow_cpuid(int allowed) { return syscall(SYS_arch_prctl, kArchCpuid, allowed); }

static uint32_t bits(const int *list) {
  uint32_t mask = 0;
  for (; *list >= 0; ++list) mask |= 1u << *list;
  return mask;
}

/* Clears in `r` (eax, ebx, ecx, edx) what a CPU with AVX2 does not have; numbers are bits in Intel's manual (volume 2,
   CPUID). */
static void hide(uint32_t leaf, uint32_t subleaf, uint32_t r[4]) {
  /* AVX512 F, DQ, IFMA, PF, ER, CD, BW, VL; VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ; 4VNNIW, 4FMAPS, VP2INTERSECT, AMX BF16,
     FP16, TILE, INT8 */
  static const int ebx[] = {16, 17, 21, 26, 27, 28, 30, 31, -1}, ecx[] = {1, 6, 11, 12, 14, -1},
                   edx[] = {2, 3, 8, 22, 23, 24, 25, -1};
  /* AVX-VNNI, AVX512 BF16, AMX FP16, AVX-IFMA; AVX-VNNI INT8, AVX-NE-CONVERT, AMX COMPLEX, AVX-VNNI INT16, AVX10 */
  static const int eax1[] = {4, 5, 21, 23, -1}, edx1[] = {4, 5, 8, 10, 19, -1};
  static const int state[] = {5, 6, 7, 17, 18, -1}; /* of opmask, ZMM registers, tiles */
  if (leaf == 7 && subleaf == 0) {
    r[1] &= ~bits(ebx);
    r[2] &= ~bits(ecx);
    r[3] &= ~bits(edx);
  } else if (leaf == 7 && subleaf == 1) {
    r[0] &= ~bits(eax1);
    r[3] &= ~bits(edx1);
  } else if (leaf == 0xd && subleaf == 0) {
    r[0] &= ~bits(state);
  } else if (leaf == 0x1d || leaf == 0x1e || leaf == 0x24) { /* tiles, their products, AVX10 */
    r[0] = r[1] = r[2] = r[3] = 0;
  }
}

static void answer(greg_t *registers) {
  uint32_t r[4];
  const uint32_t leaf = (uint32_t)registers[REG_RAX], subleaf = (uint32_t)registers[REG_RCX];
  allow_cpuid(1);
  __asm__ volatile("cpuid" : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3]) : "a"(leaf), "c"(subleaf));
  allow_cpuid(0);
  hide(leaf, subleaf, r);
  registers[REG_RAX] = r[0];
  registers[REG_RBX] = r[1];
  registers[REG_RCX] = r[2];
  registers[REG_RDX] = r[3];
  registers[REG_RIP] += 2;
}

static int set_action(int signal, const struct sigaction *act, struct sigaction *old) {
  static int (*real)(int, const struct sigaction *, struct sigaction *);
  if (!real) real = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");
  return real(signal, act, old);
}

static void on_fault(int signal, siginfo_t *info, void *context) {
  greg_t *const registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  const uint8_t *const code = (const uint8_t *)registers[REG_RIP];
  const int saved = errno;
  /* A general protection fault; an access to unmapped memory has SEGV_MAPERR or SEGV_ACCERR, and code may be that memory. */
  if (info->si_code == SI_KERNEL && code[0] == 0x0f && code[1] == 0xa2) {
    answer(registers);
    errno = saved;
  } else if (other.sa_flags & SA_SIGINFO) {
    other.sa_sigaction(signal, info, context);
  } else if (other.sa_handler != SIG_DFL && other.sa_handler != SIG_IGN) {
    other.sa_handler(signal);
  } else {
    set_action(signal, &other, NULL); /* the instruction faults again and ends the process */
  }
}

/* The program's handlers of SIGSEGV get the faults that are not ours. */
int sigaction(int signal, const struct sigaction *act, struct sigaction *old) {
  if (signal != SIGSEGV) return set_action(signal, act, old);
  const struct sigaction before = other;
  if (act) other = *act;
  if (old) *old = before;
  return 0;
}

__attribute__((constructor)) static void begin(void) {
  struct sigaction ours = {.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
  ours.sa_sigaction = on_fault;
  if (set_action(SIGSEGV, &ours, NULL) != 0 || allow_cpuid(0) != 0) {
    perror("limit_cpu: CPUID does not fault on this CPU or kernel");
    _exit(1);
  }
}
