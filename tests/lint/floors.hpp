// Includes go down the house only: the table in floors.cpp says what each floor may stand on.
#pragma once

#include <string>
#include <vector>

#include "tests/lint/source_tree.hpp"

namespace lockstep::internal::lint {

/// One message for every include that goes up or sideways, and for every file that belongs to no floor of the
/// table. Includes with angle brackets, and quoted ones of other projects ("hwy/highway.h"), are passed over.
std::vector<std::string> floor_findings(const std::vector<SourceFile>& files);

}  // namespace lockstep::internal::lint
