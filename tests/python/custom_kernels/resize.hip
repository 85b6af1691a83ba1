// Bilinear resizing of images with channels last, as HIP programs have it; a warp shares each row's weights.
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>

__global__ void __launch_bounds__(64) resize_bilinear(const unsigned char* in, unsigned char* out, int height, int width,
                                                      int out_height, int out_width, int channels) {
  const int y = hipBlockIdx_y * hipBlockDim_y + hipThreadIdx_y;
  float fy = 0.f;
  if (hipThreadIdx_x == 0) fy = fmaxf((y + 0.5f) * height / out_height - 0.5f, 0.f);
  fy = __shfl(fy, 0, 32);
  if (y >= out_height) return;
  const int y0 = min((int)fy, height - 1), y1 = min(y0 + 1, height - 1);
  const float ly = fy - y0;
  for (int x = hipThreadIdx_x; x < out_width; x += hipBlockDim_x) {
    const float fx = fmaxf((x + 0.5f) * width / out_width - 0.5f, 0.f);
    const int x0 = min((int)fx, width - 1), x1 = min(x0 + 1, width - 1);
    const float lx = fx - x0;
    for (int c = 0; c < channels; ++c) {
      const float a = in[(y0 * width + x0) * channels + c], b = in[(y0 * width + x1) * channels + c];
      const float d = in[(y1 * width + x0) * channels + c], e = in[(y1 * width + x1) * channels + c];
      const float v = (a + (b - a) * lx) * (1 - ly) + (d + (e - d) * lx) * ly;
      out[(y * out_width + x) * channels + c] = (unsigned char)__float2int_rn(v);
    }
  }
}
