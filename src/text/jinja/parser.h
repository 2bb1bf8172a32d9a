// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_JINJA_PARSER_H_
#define HALFBYTE_TEXT_JINJA_PARSER_H_

#include <string_view>

#include "text/jinja/ast.h"

namespace halfbyte::jinja {

/// Parses a template. Throws Failure: kInvalidArgument for a mistake, kUnsupported for a construct
/// that is Jinja but not in the subset; both name the line.
Body parse_template(std::string_view source);

}  // namespace halfbyte::jinja

#endif  // HALFBYTE_TEXT_JINJA_PARSER_H_
