#include "lib/bootstrap/store_protocol.hpp"

#include "lib/bootstrap/limits.hpp"
#include "lib/bootstrap/wire.hpp"

namespace lockstep::internal {
namespace {

Status malformed() {
  return Status(ErrorCode::unauthorized,
                "the other side of a store connection sent what is no message of the store");
}

std::string frame(const std::string& body) {
  std::string bytes;
  WireWriter writer(bytes);
  writer.text(body);  // A text is its size and its bytes, as a frame is.
  return bytes;
}

/// Reads a count and so many items with `read_item`. The count is checked by what follows, never by itself.
template <typename Item, typename ReadItem>
bool read_list(WireReader& reader, std::vector<Item>& items, ReadItem read_item) {
  std::uint32_t count = 0;
  if (!reader.integer(count) || count > kMaxKeys) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    Item item;
    if (!read_item(item)) return false;
    items.push_back(std::move(item));
  }
  return true;
}

bool read_string(WireReader& reader, std::size_t most, std::string& value) {
  std::string_view text;
  if (!reader.text(most, text)) return false;
  value = text;
  return true;
}

bool read_keys(WireReader& reader, std::vector<std::string>& keys) {
  return read_list(reader, keys, [&](std::string& key) { return read_string(reader, kMaxKeyBytes, key); });
}

bool read_entries(WireReader& reader, std::vector<Store::Entry>& entries) {
  return read_list(reader, entries, [&](Store::Entry& entry) {
    return read_string(reader, kMaxKeyBytes, entry.first) &&
           read_string(reader, kMaxValueBytes, entry.second);
  });
}

bool read_fields(WireReader& reader, StoreRequest& request) {
  switch (request.verb) {
    case StoreVerb::set:
      return read_entries(reader, request.entries);
    case StoreVerb::get:
    case StoreVerb::wait:
      return reader.integer(request.timeout_ms) && read_keys(reader, request.keys);
    case StoreVerb::add:
      return reader.integer(request.delta) && read_string(reader, kMaxKeyBytes, request.keys.emplace_back());
    case StoreVerb::leave:
      return true;
    case StoreVerb::lost:
      return reader.integer(request.loss.rank) &&
             read_string(reader, kMaxEvidenceBytes, request.loss.evidence);
  }
  return false;
}

}  // namespace

std::string encode(const StoreRequest& request) {
  std::string body;
  WireWriter writer(body);
  writer.integer(static_cast<std::uint8_t>(request.verb));
  switch (request.verb) {
    case StoreVerb::set:
      writer.integer(static_cast<std::uint32_t>(request.entries.size()));
      for (const auto& [key, value] : request.entries) {
        writer.text(key);
        writer.text(value);
      }
      break;
    case StoreVerb::get:
    case StoreVerb::wait:
      writer.integer(request.timeout_ms);
      writer.integer(static_cast<std::uint32_t>(request.keys.size()));
      for (const std::string& key : request.keys) writer.text(key);
      break;
    case StoreVerb::add:
      writer.integer(request.delta);
      writer.text(request.keys.front());
      break;
    case StoreVerb::leave:
      break;
    case StoreVerb::lost:
      writer.integer(request.loss.rank);
      writer.text(std::string_view(request.loss.evidence).substr(0, kMaxEvidenceBytes));
      break;
  }
  return frame(body);
}

std::string encode(const StoreReply& reply) {
  std::string body;
  WireWriter writer(body);
  writer.integer(static_cast<std::int32_t>(reply.status.code()));
  writer.text(std::string_view(reply.status.message()).substr(0, kMaxValueBytes));
  writer.integer(reply.sum);
  writer.integer(static_cast<std::uint32_t>(reply.values.size()));
  for (const std::string& value : reply.values) writer.text(value);
  writer.integer(static_cast<std::uint32_t>(reply.present.size()));
  for (const bool present : reply.present) writer.integer(static_cast<std::uint8_t>(present));
  return frame(body);
}

Result<std::optional<std::span<const std::byte>>> first_frame(std::span<const std::byte> bytes,
                                                              std::size_t most) {
  using Body = std::optional<std::span<const std::byte>>;
  WireReader reader(bytes);
  std::uint32_t size = 0;
  if (!reader.integer(size)) return Body();
  if (size > most) return malformed();
  std::span<const std::byte> body;
  return reader.raw(size, body) ? Body(body) : Body();
}

Result<StoreRequest> decode_request(std::span<const std::byte> body) {
  StoreRequest request;
  WireReader reader(body);
  std::uint8_t verb = 0;
  if (!reader.integer(verb)) return malformed();
  request.verb = static_cast<StoreVerb>(verb);
  if (!read_fields(reader, request) || reader.left() != 0) return malformed();
  return request;
}

Result<StoreReply> decode_reply(std::span<const std::byte> body) {
  StoreReply reply;
  WireReader reader(body);
  ErrorCode code = ErrorCode::ok;
  std::string message;
  const auto read_value = [&](std::string& value) { return read_string(reader, kMaxValueBytes, value); };
  const auto read_bit = [&](bool& present) {
    std::uint8_t byte = 0;
    const bool good = reader.integer(byte) && byte <= 1;
    present = byte == 1;
    return good;
  };
  if (!reader.code(code) || !read_string(reader, kMaxValueBytes, message) || !reader.integer(reply.sum) ||
      !read_list(reader, reply.values, read_value) || !read_list(reader, reply.present, read_bit) ||
      reader.left() != 0 || (code == ErrorCode::ok && !message.empty())) {
    return malformed();
  }
  if (code != ErrorCode::ok) reply.status = Status(code, std::move(message));
  return reply;
}

}  // namespace lockstep::internal
