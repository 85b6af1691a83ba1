// One registration function per file of routines. A new file adds a line here and one to register_all.
#pragma once
#include <map>
#include <string_view>

#include "routines/routine.h"

namespace sardonyx::routines {

using Table = std::map<std::string_view, Fn>;

void register_recurrent(Table& t);
void register_sorting(Table& t);
void register_scatter(Table& t);
void register_nms(Table& t);
void register_determinant(Table& t);
void register_fourier(Table& t);
void register_random_seed(Table& t);
void register_integer_gemm(Table& t);

inline void register_all(Table& t) {
  register_recurrent(t);
  register_sorting(t);
  register_scatter(t);
  register_nms(t);
  register_determinant(t);
  register_fourier(t);
  register_random_seed(t);
  register_integer_gemm(t);
}

}  // namespace sardonyx::routines
