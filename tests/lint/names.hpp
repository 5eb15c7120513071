// Two types of one name in one namespace: the linker takes the functions of either for both, and nobody is
// told.
#pragma once

#include <string>
#include <vector>

#include "tests/lint/source_tree.hpp"

namespace lockstep::internal::lint {

/// One message for every definition of a struct, class or enum whose name its namespace has already, in
/// another file or in the same. Anonymous namespaces and types inside types are passed over.
std::vector<std::string> name_findings(const std::vector<SourceFile>& files);

}  // namespace lockstep::internal::lint
