// What the interfaces do with the table of options in sardonyx/compile_options.h.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "sardonyx/compile_options.h"

namespace sardonyx {

/// The row of an option; null if there is none of this name.
const OptionInfo* find_option(std::string_view name);

/// The allowed values of an option; empty: any.
std::vector<std::string_view> allowed_values(const OptionInfo& option);

/// Sets an option from text. A dim is "batch=4"; each call adds one. `who` begins error messages: "--threads". Throws
/// Error(kInvalidArgument) for a text that does not fit the option's type, values or range.
void set_option(Options& options, const OptionInfo& option, std::string_view who, std::string_view text);

/// The value as set_option() reads it; dims with commas between them.
std::string option_text(const Options& options, const OptionInfo& option);
/// The default as documentation shows it.
std::string default_text(const OptionInfo& option);
bool is_default(const Options& options, const OptionInfo& option);

/// Checks every option against its allowed values and range. Throws Error(kInvalidArgument).
void check_values(const Options& options);

/// The first option that differs from its default and does not apply to a compiled program; null: there is none.
const OptionInfo* option_for_compiling(const Options& options);

/// All options that affect the compiled model, except the names of files, as text: equal texts, equal programs.
std::string settings_text(const Options& options);

}  // namespace sardonyx
