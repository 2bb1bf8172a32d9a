// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_JINJA_EVALUATOR_H_
#define HALFBYTE_TEXT_JINJA_EVALUATOR_H_

#include <string>

#include "text/jinja/ast.h"

namespace halfbyte::jinja {

/// The text of a template with these variables. Throws Failure. Any thread.
std::string render_template(const Body& body, const Dict& variables);

}  // namespace halfbyte::jinja

#endif  // HALFBYTE_TEXT_JINJA_EVALUATOR_H_
