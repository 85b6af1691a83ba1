// The implementation of the C++ interface's CompiledModel.
#pragma once
#include <memory>

#include "api/model.h"
#include "sardonyx/sardonyx.h"

namespace sardonyx {

struct CompiledModel::Impl {
  std::unique_ptr<Model> model;
};

}  // namespace sardonyx
