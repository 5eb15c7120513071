// What kinds of elements there are: every type, by its name.
#include "lib/base/element_types.hpp"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::internal {
namespace {

TEST(ElementTypes, AreOfTheKindThatTheirNamesSay) {
  for (int i = 0; i < kDataTypeCount; ++i) {
    const auto type = static_cast<DataType>(i);
    const std::string name(name_of(type));
    EXPECT_EQ(is_complex(type), name.starts_with("complex")) << name;
    EXPECT_EQ(is_integer(type), name.starts_with("i") || name.starts_with("u")) << name;
    const Parts parts = parts_of(type);
    EXPECT_EQ(parts.count * size_of(parts.type), size_of(type)) << name;
    EXPECT_FALSE(is_complex(parts.type)) << name;
    EXPECT_EQ(alignment_of(type), is_complex(type) ? size_of(type) / 2 : size_of(type)) << name;
  }
  EXPECT_EQ(parts_of(DataType::complex64).type, DataType::f32);
  EXPECT_EQ(parts_of(DataType::complex128).type, DataType::f64);
}

TEST(ElementTypes, WhatIsNoTypeIsOfNoKind) {
  const auto none = static_cast<DataType>(kDataTypeCount);
  EXPECT_FALSE(is_complex(none));
  EXPECT_FALSE(is_integer(none));
  EXPECT_EQ(alignment_of(none), 1u);
}

}  // namespace
}  // namespace lockstep::internal
