// Reads huntd's updates and makes its events: frames, chain, reader rule, seqs. One header, C++20,
// for physics and rendering workers. It brings no Kafka client: give it the records of your own.
//
//     huntd::Reader reader;                       // one for each output partition
//     if (auto frame = huntd::parse_frame(bytes)) // none: no frame; throws: stop
//         for (const auto& update : reader.fold(*frame).updates) ...
//
// It reads the binary form, publish.format = "binary". huntd.cpp reads a topic with librdkafka.
// docs/PROTOCOL.md has the reader rule, docs/RULES.md the updates, docs/EVENTS.md the events.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace huntd {

// ---- frames ------------------------------------------------------------------------------------

enum class FrameKind : std::uint8_t { updates = 1, fence, skip, genesis };

inline constexpr std::uint8_t frame_version = 2;

// Owners raise the epoch by 1 each: if two epochs are further apart, one is no owner's.
inline constexpr std::uint64_t epoch_step_max = std::uint64_t{1} << 32;

// For each kind from 1, how many names its code and its short stand for: 0 if for none.
// schema: begin, written by `HUNTD_REGENERATE=true cargo test --test host schema`
inline constexpr std::uint16_t name_counts[][2] = {
    {21, 12}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0},
    {0, 0}, {0, 0}, {0, 0}, {4, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0},
    {3, 0}, {0, 0}, {0, 0}, {0, 0}, {4, 0}, {4, 0}, {6, 0}, {0, 0},
    {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0},
};
// schema: end

inline constexpr std::size_t frame_bytes_max = 921'600, frame_updates_max = 4096;

// A frame that this reader cannot read. It may be a fence, or hold updates without which nothing
// after it counts: stop.
struct Unreadable : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Four words, laid out as docs/RULES.md has it: what the chain is made of.
struct Update {
    std::array<std::uint64_t, 4> words;

    std::uint64_t player_id() const { return words[0]; }
    std::int64_t ts_us() const { return static_cast<std::int64_t>(words[1]); }
    std::uint8_t kind() const { return static_cast<std::uint8_t>(words[2]); }
    std::uint8_t code() const { return static_cast<std::uint8_t>(words[2] >> 8); }
    std::uint16_t short_field() const { return static_cast<std::uint16_t>(words[2] >> 16); }
    std::uint32_t word() const { return static_cast<std::uint32_t>(words[2] >> 32); }
    std::uint32_t low() const { return static_cast<std::uint32_t>(words[3]); }
    std::uint32_t high() const { return static_cast<std::uint32_t>(words[3] >> 32); }
    std::uint64_t long_field() const { return words[3]; }

    // Whether the kind, and each number that stands for a name, has one.
    bool is_known() const {
        if (kind() < 1 || kind() > std::size(name_counts)) return false;
        const auto [codes, shorts] = name_counts[kind() - 1];
        return (codes == 0 || code() < codes) && (shorts == 0 || short_field() < shorts);
    }
};

using FenceId = std::array<std::uint64_t, 2>;

// One record of the output topic.
struct Frame {
    FrameKind kind;
    std::uint64_t epoch, first_update;
    std::int64_t next_offset;
    std::uint32_t ruleset;
    std::uint64_t chain;
    FenceId fence_id;
    std::vector<Update> updates;

    bool is_placed() const { return kind == FrameKind::fence && next_offset >= 0; }
};

// A little-endian number, whatever this machine's order is.
template <typename Number>
Number number_at(std::span<const std::uint8_t> bytes, std::size_t at) {
    std::uint64_t value = 0;
    for (std::size_t byte = sizeof(Number); byte-- > 0;) value = value << 8 | bytes[at + byte];
    return static_cast<Number>(value);
}

// A binary frame; nothing if the record is no frame of any version: pass it over. It throws
// Unreadable at a frame that cannot be read.
inline std::optional<Frame> parse_frame(std::span<const std::uint8_t> record) {
    const auto begins_with = [&](std::string_view head) {
        return record.size() >= head.size() &&
               std::memcmp(record.data(), head.data(), head.size()) == 0;
    };
    if (begins_with("{\"version\":") || begins_with("{\"kind\":\"")) {
        throw Unreadable("a JSON frame; set publish.format = \"binary\"");
    }
    if (!begins_with("HNTF")) return std::nullopt;
    if (record.size() < 5 || record[4] != frame_version) throw Unreadable("a frame of another version");
    if (record.size() < 64 || record.size() > frame_bytes_max) {
        throw Unreadable("a frame that is too short or too long");
    }
    if (record[5] < 1 || record[5] > 4 || number_at<std::uint16_t>(record, 6) != 0 ||
        record.size() != 64 + 32 * std::size_t{number_at<std::uint32_t>(record, 24)}) {
        throw Unreadable("a frame of an unknown kind, with unknown flags, or of another length");
    }
    Frame frame{
        .kind = static_cast<FrameKind>(record[5]),
        .epoch = number_at<std::uint64_t>(record, 8),
        .first_update = number_at<std::uint64_t>(record, 16),
        .next_offset = number_at<std::int64_t>(record, 32),
        .ruleset = number_at<std::uint32_t>(record, 28),
        .chain = number_at<std::uint64_t>(record, 40),
        .fence_id = {number_at<std::uint64_t>(record, 48), number_at<std::uint64_t>(record, 56)},
        .updates = {},
    };
    const std::uint64_t count = (record.size() - 64) / 32;
    const bool is_fence = frame.kind == FrameKind::fence;
    if (count > frame_updates_max || (count > 0 && frame.kind != FrameKind::updates) ||
        (frame.fence_id != FenceId{} && !is_fence) || frame.next_offset < (is_fence ? -1 : 0) ||
        frame.first_update + count < frame.first_update) {
        throw Unreadable("a frame with a field out of range");
    }
    frame.updates.reserve(count);
    for (std::size_t at = 64; at < record.size(); at += 32) {
        Update update{};
        for (std::size_t word = 0; word < 4; ++word) {
            update.words[word] = number_at<std::uint64_t>(record, at + 8 * word);
        }
        if (!update.is_known()) {
            throw Unreadable("an update of an unknown kind, or with an unknown name");
        }
        frame.updates.push_back(update);
    }
    return frame;
}

// The two halves of a 128-bit product in one word.
inline std::uint64_t folded(std::uint64_t a, std::uint64_t b) {
    __extension__ using Product = unsigned __int128;
    const Product product = Product{a} * Product{b};
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// The chain after one more update.
inline std::uint64_t chained(std::uint64_t chain, const Update& update) {
    const auto& [player, time, third, fourth] = update.words;
    const std::uint64_t who_when = folded(player ^ 0x6a09e667f3bcc909, time ^ 0xbb67ae8584caa73b);
    const std::uint64_t what = folded(third ^ 0x3c6ef372fe94f82c, fourth ^ 0xa54ff53a5f1d36f1);
    return folded((chain + who_when + what) ^ 0x6a09e667f3bcc909, 0xa54ff53a5f1d36f1);
}

// ---- the reader rule ---------------------------------------------------------------------------

// Where a reader stands. Store it with the offset of the next record, in one step with what you make
// of the updates.
struct Position {
    std::uint64_t epoch = 0, next_update = 0;
    std::int64_t next_offset = 0;
    std::uint64_t chain = 0;
};

enum class Meaning { accepted, progress, fence, skip, genesis, joined, waiting, stale, duplicate, gap, halt };

// What a frame means. `number` is the index of the first new update, the skipped input offset, or
// how many updates are missing. `updates` lives as long as the frame.
struct Verdict {
    Meaning meaning;
    std::uint64_t number = 0;
    std::span<const Update> updates = {};
};

// Folds the frames of one output partition, in the order of the log.
class Reader {
public:
    // At the start of the log, or where another one stood.
    explicit Reader(Position position = {}) : position_(position) {}

    // Anywhere: it waits for a fence that says where the shard stands.
    static Reader joining() {
        Reader reader;
        reader.footing_ = Footing::none;
        return reader;
    }

    const Position& position() const { return position_; }
    std::uint64_t gaps() const { return gaps_; }

    Verdict fold(const Frame& frame) {
        if (halted_) return {Meaning::halt};
        const auto [low, high] = std::minmax({frame.epoch, position_.epoch});
        // A note, of epoch 0, says nothing about the reader's.
        if (frame.epoch != 0 && high - low > epoch_step_max) {
            if (footing_ == Footing::none || has_accepted_nothing()) {
                // Either epoch may be no owner's: the owner's next frame will tell.
                footing_ = Footing::none;
                position_.epoch = frame.epoch;
                fence_id_ = frame.fence_id;
            } else if (frame.epoch > position_.epoch) {
                return {Meaning::stale};
            }
        }
        if (footing_ == Footing::fence && (is_overtaken_by(frame) || is_elsewhere(frame))) {
            footing_ = Footing::none;
        }
        if (footing_ == Footing::none) return join(frame);
        if (frame.kind == FrameKind::fence) {
            raise(frame.epoch, frame.fence_id);
            return {Meaning::fence};
        }
        if (frame.epoch < position_.epoch) return {Meaning::stale};
        raise(frame.epoch, {});
        if (frame.kind == FrameKind::skip) {
            return {Meaning::skip, static_cast<std::uint64_t>(frame.next_offset - 1)};
        }
        if (frame.kind == FrameKind::genesis) return genesis(frame);
        if (frame.updates.empty()) {
            if (frame.first_update == position_.next_update) advance(frame.next_offset);
            return {Meaning::progress};
        }
        return accept(frame);
    }

private:
    enum class Footing { sure, fence, none };

    Verdict accept(const Frame& frame) {
        const std::uint64_t next = position_.next_update;
        const std::uint64_t end = frame.first_update + frame.updates.size();
        if (end <= next) return {Meaning::duplicate};
        if (frame.first_update > next) {
            ++gaps_;
            return {Meaning::gap, frame.first_update - next};
        }
        const std::uint64_t from = next - frame.first_update;
        const auto added = std::span<const Update>(frame.updates).subspan(from);
        std::uint64_t chain = position_.chain;
        for (const Update& update : added) chain = chained(chain, update);
        if (chain != frame.chain) return differ();
        position_.chain = chain;
        position_.next_update = end;
        advance(frame.next_offset);
        return {Meaning::accepted, from, added};
    }

    Verdict genesis(const Frame& frame) {
        if (frame.first_update != position_.next_update) return {Meaning::duplicate};
        if (frame.chain != position_.chain) return differ();
        position_.next_offset = frame.next_offset;
        return {Meaning::genesis};
    }

    Verdict differ() {
        if (has_accepted_nothing()) {
            footing_ = Footing::none;
            return {Meaning::waiting};
        }
        halted_ = true;
        return {Meaning::halt};
    }

    Verdict join(const Frame& frame) {
        raise(frame.epoch, frame.fence_id);
        if (!frame.is_placed() || frame.epoch < position_.epoch) return {Meaning::waiting};
        position_ = {frame.epoch, frame.first_update, frame.next_offset, frame.chain};
        fence_id_ = frame.fence_id;
        joined_at_ = frame.first_update;
        footing_ = Footing::fence;
        return {Meaning::joined};
    }

    void raise(std::uint64_t epoch, const FenceId& id) {
        if (epoch > position_.epoch) {
            position_.epoch = epoch;
            fence_id_ = id;
        }
    }

    bool is_overtaken_by(const Frame& frame) const {
        const bool takes_over = frame.kind == FrameKind::fence && frame.next_offset < 0;
        const bool is_another = frame.is_placed() && frame.epoch == position_.epoch &&
                                frame.fence_id != fence_id_;
        const bool is_newer = frame.epoch > position_.epoch;
        return is_another || (is_newer && !(takes_over && frame.epoch == position_.epoch + 1));
    }

    bool is_elsewhere(const Frame& frame) const {
        const bool differs = frame.first_update != position_.next_update ||
                             frame.next_offset < position_.next_offset;
        return has_accepted_nothing() && frame.is_placed() && frame.epoch == position_.epoch &&
               differs;
    }

    bool has_accepted_nothing() const {
        return footing_ == Footing::fence && joined_at_ == position_.next_update;
    }

    void advance(std::int64_t next_offset) {
        position_.next_offset = std::max(position_.next_offset, next_offset);
    }

    Position position_;
    FenceId fence_id_{};
    std::uint64_t gaps_ = 0, joined_at_ = 0;
    bool halted_ = false;
    Footing footing_ = Footing::sure;
};

// ---- events ------------------------------------------------------------------------------------

// A `seq` for each event of a player that survives restarts: the time, or one more.
class Seqs {
public:
    std::uint64_t next(std::uint64_t player, std::uint64_t now_us) {
        std::uint64_t& last = last_[player];
        return last = std::max(last + 1, now_us);
    }

private:
    std::unordered_map<std::uint64_t, std::uint64_t> last_;
};

}  // namespace huntd
