// Options between Python and the tables of src/options/.
#pragma once
#include <nanobind/nanobind.h>

#include "sardonyx/compile_options.h"

namespace sardonyx::python {

/// Options by name, as sardonyx/options.py passes them; the others have their defaults. Raises TypeError for a value of
/// another type, KeyError for an unknown name.
Options options_of(const nanobind::dict& given);

/// Adds the functions that list options to the module.
void define_options(nanobind::module_& m);

}  // namespace sardonyx::python
