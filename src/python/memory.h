// Python's buffer protocol for memory of our own, which pure Python offers only from 3.12 on.
#pragma once
#include <nanobind/nanobind.h>

namespace sardonyx::python {

/// Memory, from which sardonyx.migraphx.argument is derived; borrowed_tensor.
void define_memory(nanobind::module_& m);

}  // namespace sardonyx::python
