#include "ddp/checkpoint/manifest.hpp"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "ddp/bucket_plan.hpp"
#include "lib/bootstrap/limits.hpp"

namespace lockstep::internal {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "lockstep checkpoint";
constexpr int kVersion = 1;
constexpr std::size_t kDigestDigits = 64;

Status bad(const std::string& what) { return Status(ErrorCode::invalid_argument, "the manifest " + what); }

std::optional<DataType> type_called(std::string_view name) {
  for (int t = 0; t < kDataTypeCount; ++t) {
    if (name_of(static_cast<DataType>(t)) == name) return static_cast<DataType>(t);
  }
  return std::nullopt;
}

Result<std::string> dump(const Json& json, int indent) try {
  return json.dump(indent) + "\n";
} catch (const Json::exception&) {
  return Status(ErrorCode::invalid_argument, "a name or the note is not UTF-8");
}

Json to_json(const Tensor& tensor) {
  return {{"name", tensor.name}, {"type", std::string(name_of(tensor.type))}, {"shape", tensor.shape}};
}

Json to_json(const DataFile& file) {
  Json pieces = Json::array();
  for (const Piece& piece : file.pieces) {
    pieces.push_back({{"tensor", piece.tensor},
                      {"first", piece.first},
                      {"count", piece.count},
                      {"offset", piece.offset},
                      {"sha256", piece.sha256}});
  }
  return {{"name", file.name}, {"bytes", file.bytes}, {"pieces", std::move(pieces)}};
}

/// Of the right type, or an exception of the parser: no conversion of a negative or fractional number passes.
std::uint64_t number(const Json& json, const char* key) {
  const Json& value = json.at(key);
  if (!value.is_number_unsigned()) throw std::invalid_argument(std::string(key) + " is not a count");
  return value.get<std::uint64_t>();
}

Result<Tensor> tensor_from(const Json& json) {
  const auto type_name = json.at("type").get<std::string>();
  const std::optional<DataType> type = type_called(type_name);
  if (!type) return bad("has a tensor of the unknown type \"" + type_name + '"');
  TensorSlice slice{json.at("name").get<std::string>(), *type, {}, 0, 0, nullptr};
  for (const Json& dimension : json.at("shape")) {
    if (!dimension.is_number_unsigned()) return bad("has a shape that is not a list of counts");
    slice.shape.push_back(dimension.get<std::size_t>());
  }
  return tensor_of(slice);
}

DataFile file_from(const Json& json) {
  DataFile file{json.at("name").get<std::string>(), number(json, "bytes"), {}};
  for (const Json& piece : json.at("pieces")) {
    file.pieces.push_back({piece.at("tensor").get<std::string>(), number(piece, "first"),
                           number(piece, "count"), number(piece, "offset"),
                           piece.at("sha256").get<std::string>()});
  }
  return file;
}

using TensorsByName = std::unordered_map<std::string, const Tensor*>;

/// Neither leaves its tensor nor its file, with sums that cannot overflow.
Status check_piece(const Piece& piece, const DataFile& file, const TensorsByName& tensors) {
  const auto found = tensors.find(piece.tensor);
  const std::string where = "has a piece of \"" + piece.tensor + "\" in " + file.name + " that ";
  if (found == tensors.end()) return bad(where + "belongs to no tensor");
  const Tensor& tensor = *found->second;
  if (piece.count == 0 || piece.count > tensor.count || piece.first > tensor.count - piece.count) {
    return bad(where + "lies outside of it");
  }
  if (piece.count > kMaxPieceBytes / size_of(tensor.type)) return bad(where + "is too large");
  const std::uint64_t bytes = piece.count * size_of(tensor.type);
  if (bytes > file.bytes || piece.offset > file.bytes - bytes) return bad(where + "lies past the file's end");
  if (piece.sha256.size() != kDigestDigits) return bad(where + "has no SHA-256");
  return {};
}

Status check_file_name(const DataFile& file) {
  std::uint64_t generation = 0;
  if (is_data_file_name(file.name, generation)) return {};
  return bad("names a file \"" + file.name + "\", which is no name of a data file");
}

}  // namespace

std::string data_file_name(std::uint64_t generation, int rank, int ranks) {
  return "g" + std::to_string(generation) + "-rank" + std::to_string(rank) + "of" + std::to_string(ranks) +
         ".bin";
}

bool is_data_file_name(std::string_view name, std::uint64_t& generation) {
  std::uint64_t numbers[3] = {};
  constexpr std::string_view kBefore[3] = {"g", "-rank", "of"};
  for (int k = 0; k < 3; ++k) {
    if (!name.starts_with(kBefore[k])) return false;
    name.remove_prefix(kBefore[k].size());
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), numbers[k]);
    if (error != std::errc()) return false;
    name.remove_prefix(static_cast<std::size_t>(end - name.data()));
  }
  generation = numbers[0];
  return name == ".bin";
}

Result<std::string> to_json(const Manifest& manifest) {
  Json json{{"format", std::string(kFormat)},
            {"version", kVersion},
            {"generation", manifest.generation},
            {"step", manifest.info.step},
            {"world_size", manifest.info.world_size},
            {"note", manifest.info.note},
            {"tensors", Json::array()},
            {"files", Json::array()}};
  for (const Tensor& tensor : manifest.tensors) json["tensors"].push_back(to_json(tensor));
  for (const DataFile& file : manifest.files) json["files"].push_back(to_json(file));
  return dump(json, 1);
}

Result<Manifest> parse_manifest(std::string_view text) try {
  const Json json = Json::parse(text);
  if (json.value("format", "") != kFormat) return bad("is not that of a lockstep checkpoint; check the path");
  if (const std::uint64_t version = number(json, "version"); version != kVersion) {
    return bad("has version " + std::to_string(version) + ", and this library reads version " +
               std::to_string(kVersion) + "; use the lockstep that saved it");
  }
  Manifest manifest;
  manifest.generation = number(json, "generation");
  manifest.info.step = number(json, "step");
  manifest.info.note = json.at("note").get<std::string>();
  const std::uint64_t world_size = number(json, "world_size");
  if (world_size < 1 || world_size > kMaxWorld) return bad("has an impossible world size");
  manifest.info.world_size = static_cast<int>(world_size);
  for (const Json& entry : json.at("tensors")) {
    auto tensor = tensor_from(entry);
    LOCKSTEP_RETURN_IF_ERROR(tensor.status());
    manifest.info.bytes += tensor->count * size_of(tensor->type);
    manifest.tensors.push_back(std::move(*tensor));
  }
  for (const Json& entry : json.at("files")) manifest.files.push_back(file_from(entry));
  LOCKSTEP_RETURN_IF_ERROR(check_cover(manifest));
  return manifest;
} catch (const std::bad_alloc&) {
  return Status(ErrorCode::out_of_memory, "no memory to read the manifest");
} catch (const std::exception& error) {
  return bad(std::string("cannot be read: ") + error.what() + "; " + kUseAnother);
}

Result<std::string> contribution_to_json(const DataFile& file, std::span<const Tensor> tensors) {
  Json json{{"file", to_json(file)}, {"tensors", Json::array()}};
  for (const Tensor& tensor : tensors) json["tensors"].push_back(to_json(tensor));
  return dump(json, -1);
}

/// The tensors of all ranks become one list, in the order of the first that names them.
Status add_contribution(std::string_view text, Manifest& manifest) try {
  const Json json = Json::parse(text);
  std::unordered_map<std::string, std::size_t> known;
  for (std::size_t t = 0; t < manifest.tensors.size(); ++t) known[manifest.tensors[t].name] = t;
  for (const Json& entry : json.at("tensors")) {
    auto tensor = tensor_from(entry);
    LOCKSTEP_RETURN_IF_ERROR(tensor.status());
    const auto [place, added] = known.emplace(tensor->name, manifest.tensors.size());
    if (added) {
      manifest.tensors.push_back(*tensor);
    } else if (describe(manifest.tensors[place->second]) != describe(*tensor)) {
      return Status(ErrorCode::mismatch, "one rank saves " + describe(manifest.tensors[place->second]) +
                                             ", another " + describe(*tensor));
    }
  }
  DataFile file = file_from(json.at("file"));
  if (!file.pieces.empty()) manifest.files.push_back(std::move(file));
  return {};
} catch (const std::bad_alloc&) {
  return Status(ErrorCode::out_of_memory, "no memory to read a rank's list of slices");
} catch (const std::exception& error) {
  return Status(ErrorCode::internal, std::string("a rank's list of slices cannot be read: ") + error.what());
}

Status check_cover(const Manifest& manifest) {
  TensorsByName tensors;
  for (const Tensor& tensor : manifest.tensors) {
    if (!tensors.emplace(tensor.name, &tensor).second)
      return bad("has the tensor \"" + tensor.name + "\" twice");
  }
  std::unordered_map<std::string, std::vector<const Piece*>> pieces;
  for (const DataFile& file : manifest.files) {
    LOCKSTEP_RETURN_IF_ERROR(check_file_name(file));
    for (const Piece& piece : file.pieces) {
      LOCKSTEP_RETURN_IF_ERROR(check_piece(piece, file, tensors));
      pieces[piece.tensor].push_back(&piece);
    }
  }
  for (const Tensor& tensor : manifest.tensors) {
    std::vector<const Piece*>& own = pieces[tensor.name];
    std::sort(own.begin(), own.end(), [](const Piece* a, const Piece* b) { return a->first < b->first; });
    std::uint64_t end = 0;
    for (const Piece* piece : own) {
      if (piece->first < end)
        return bad("has element " + std::to_string(piece->first) + " of " + describe(tensor) + " twice");
      if (piece->first > end) break;
      end += piece->count;
    }
    if (end != tensor.count) return bad("lacks element " + std::to_string(end) + " of " + describe(tensor));
  }
  return {};
}

Result<Tensor> tensor_of(const TensorSlice& slice) {
  const auto count = element_count({slice.name, slice.type, slice.shape, nullptr, nullptr});
  LOCKSTEP_RETURN_IF_ERROR(count.status());
  const Tensor tensor{slice.name, slice.type, slice.shape, count.value()};
  if (slice.count > tensor.count || slice.first > tensor.count - slice.count) {
    return Status(ErrorCode::invalid_argument, "elements " + std::to_string(slice.first) + " to " +
                                                   std::to_string(slice.first + slice.count) +
                                                   " are not all in " + describe(tensor));
  }
  if (slice.count > 0 && slice.data == nullptr) {
    return Status(ErrorCode::invalid_argument, "the slice of " + describe(tensor) + " has null data");
  }
  return tensor;
}

std::string describe(const Tensor& tensor) {
  return describe(Parameter{tensor.name, tensor.type, tensor.shape, nullptr, nullptr});
}

}  // namespace lockstep::internal
