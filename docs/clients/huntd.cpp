// huntd.hpp at work: a topic is read and written with librdkafka.
//
//     c++ -std=c++20 -O2 -DWITH_LIBRDKAFKA huntd.cpp -lrdkafka -o huntd-example
//     ./huntd-example read  BROKERS TOPIC [PRINTED]  print the updates that are there, once each
//     ./huntd-example write BROKERS TOPIC PARTITION  send a join and some moves of one player
//     ./huntd-example verify                         for docs/vectors: frames in, verdicts out
//
// `read` prints a position after the updates of each frame, and goes on from the last ones in the
// file PRINTED, which has what it printed before. Without -DWITH_LIBRDKAFKA there is only
// `verify`.
#include "huntd.hpp"

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <string>

#ifdef WITH_LIBRDKAFKA
#include <librdkafka/rdkafka.h>

namespace {

// Keeps why an event was not delivered, if one was not.
void on_delivery(rd_kafka_t*, const rd_kafka_message_t* event, void* failure) {
    if (event->err) *static_cast<rd_kafka_resp_err_t*>(failure) = event->err;
}

// `failure` is a producer's, for `on_delivery`.
rd_kafka_t* client(rd_kafka_type_t type, std::map<std::string, std::string> settings,
                   rd_kafka_resp_err_t* failure = nullptr) {
    char trouble[512];
    rd_kafka_conf_t* config = rd_kafka_conf_new();
    if (failure) {
        rd_kafka_conf_set_dr_msg_cb(config, on_delivery);
        rd_kafka_conf_set_opaque(config, failure);
    }
    for (const auto& [name, value] : settings) {
        if (rd_kafka_conf_set(config, name.c_str(), value.c_str(), trouble, sizeof trouble) != RD_KAFKA_CONF_OK) {
            throw std::runtime_error(trouble);
        }
    }
    rd_kafka_t* made = rd_kafka_new(type, config, trouble, sizeof trouble);
    return made ? made : throw std::runtime_error(trouble);
}

// Where a partition is read on.
struct Begin {
    std::int64_t next_record = RD_KAFKA_OFFSET_BEGINNING;
    huntd::Position position;
};

// The last position of each partition in a file that `read` has printed, and goes on printing. A line
// that was cut off, as by a kill, counts as not printed.
std::map<std::int32_t, Begin> positions_in(const std::string& printed) {
    std::map<std::int32_t, Begin> begins;
    std::ifstream lines(printed);
    bool is_cut_off = false;
    for (std::string line; std::getline(lines, line);) {
        is_cut_off = lines.eof();
        std::int32_t partition;
        Begin begin;
        huntd::Position& at = begin.position;
        int chain_begin = 0, chain_end = 0;
        const char* form = "%" SCNd32 " position %" SCNd64 " %" SCNu64 " %" SCNu64 " %" SCNd64 " %n%" SCNx64 "%n";
        if (std::sscanf(line.c_str(), form, &partition, &begin.next_record, &at.epoch, &at.next_update,
                        &at.next_offset, &chain_begin, &at.chain, &chain_end) == 6 &&
            chain_end - chain_begin == 16 && line[chain_end] == '\0') {
            begins[partition] = begin;
        }
    }
    if (is_cut_off) std::puts("");
    return begins;
}

// Prints the new updates of a record and the position after them. Your program stores both in one
// step.
void print_accepted(const rd_kafka_message_t& message, huntd::Reader& reader) {
    const auto* bytes = static_cast<const std::uint8_t*>(message.payload);
    const auto frame = huntd::parse_frame({bytes, message.len});
    if (!frame) return;
    const huntd::Verdict verdict = reader.fold(*frame);
    if (verdict.meaning == huntd::Meaning::gap) {
        std::fprintf(stderr, "%" PRIu64 " updates are missing\n", verdict.number);
    }
    if (verdict.meaning == huntd::Meaning::halt) {
        throw std::runtime_error("the chain does not match");
    }
    if (verdict.updates.empty()) return;
    const huntd::Position& at = reader.position();
    std::uint64_t number = at.next_update - verdict.updates.size();
    for (const huntd::Update& update : verdict.updates) {
        std::printf("%" PRId32 " %" PRIu64 " kind %d player %" PRIu64 "\n", message.partition,
                    number++, update.kind(), update.player_id());
    }
    std::printf("%" PRId32 " position %" PRId64 " %" PRIu64 " %" PRIu64 " %" PRId64 " %016" PRIx64 "\n",
                message.partition, message.offset + 1, at.epoch, at.next_update, at.next_offset, at.chain);
    std::fflush(stdout);
}

void read(const std::string& brokers, const std::string& topic, const std::string& printed) {
    rd_kafka_t* consumer = client(RD_KAFKA_CONSUMER, {{"bootstrap.servers", brokers},
        {"group.id", "huntd-example"}, {"enable.auto.commit", "false"}, {"check.crcs", "true"},
        {"enable.partition.eof", "true"}, {"isolation.level", "read_uncommitted"},
        {"auto.offset.reset", "error"}}); // Join if the record at a position was deleted.
    rd_kafka_topic_t* handle = rd_kafka_topic_new(consumer, topic.c_str(), nullptr);
    const rd_kafka_metadata_t* metadata = nullptr;
    if (rd_kafka_metadata(consumer, 0, handle, &metadata, 10'000) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        throw std::runtime_error("the brokers do not answer");
    }
    if (const auto error = metadata->topics[0].err) throw std::runtime_error(rd_kafka_err2str(error));
    std::map<std::int32_t, Begin> begins = positions_in(printed);
    rd_kafka_topic_partition_list_t* list = rd_kafka_topic_partition_list_new(1);
    std::map<std::int32_t, huntd::Reader> readers;
    std::set<std::int32_t> reading;
    for (int at = 0; at < metadata->topics[0].partition_cnt; ++at) {
        const Begin& begin = begins[at];
        rd_kafka_topic_partition_list_add(list, topic.c_str(), at)->offset = begin.next_record;
        readers.emplace(at, huntd::Reader(begin.position));
        reading.insert(at);
    }
    rd_kafka_metadata_destroy(metadata);
    rd_kafka_assign(consumer, list);
    while (!reading.empty()) {
        rd_kafka_message_t* message = rd_kafka_consumer_poll(consumer, 10'000);
        if (!message) throw std::runtime_error("the brokers do not answer");
        if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
            reading.erase(message->partition); // It comes again after what is written meanwhile.
        } else if (message->err) {
            throw std::runtime_error(rd_kafka_message_errstr(message));
        } else {
            print_accepted(*message, readers.at(message->partition));
        }
        rd_kafka_message_destroy(message);
    }
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_topic_destroy(handle);
    rd_kafka_consumer_close(consumer);
    rd_kafka_destroy(consumer);
}

void write(const std::string& brokers, const std::string& topic, std::int32_t partition) {
    rd_kafka_resp_err_t failure = RD_KAFKA_RESP_ERR_NO_ERROR;
    rd_kafka_t* producer = client(RD_KAFKA_PRODUCER, {{"bootstrap.servers", brokers},
        {"acks", "all"}, {"enable.idempotence", "true"}}, &failure);
    huntd::Seqs seqs;
    const std::uint64_t player = 76561199000000001; // none of `huntd load`
    for (int step = 0; step < 5; ++step) {
        using namespace std::chrono;
        const auto now = static_cast<std::uint64_t>(
            duration_cast<microseconds>(system_clock::now().time_since_epoch()).count());
        const std::string value = "{\"type\":\"" + std::string(step == 0 ? "join" : "move") +
            "\",\"player_id\":" + std::to_string(player) + ",\"seq\":" +
            std::to_string(seqs.next(player, now)) + ",\"ts_us\":" + std::to_string(now) +
            ",\"x\":" + std::to_string(1000 + 10 * step) + ",\"y\":2000}";
        // The partition is the zone: always name it, and never let a partitioner choose.
        const auto error = rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(topic.c_str()),
            RD_KAFKA_V_PARTITION(partition), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
            RD_KAFKA_V_VALUE(const_cast<char*>(value.data()), value.size()), RD_KAFKA_V_END);
        if (error) throw std::runtime_error(rd_kafka_err2str(error));
    }
    if (rd_kafka_flush(producer, 30'000) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        throw std::runtime_error("the brokers do not answer");
    }
    if (failure) throw std::runtime_error(rd_kafka_err2str(failure));
    rd_kafka_destroy(producer);
}

}  // namespace
#endif

namespace {

std::string words(const huntd::Verdict& verdict) {
    using huntd::Meaning;
    const std::string number = std::to_string(verdict.number);
    switch (verdict.meaning) {
        case Meaning::accepted: return "accepted from " + number;
        case Meaning::progress: return "progress";
        case Meaning::fence: return "fence";
        case Meaning::skip: return "skip " + number;
        case Meaning::genesis: return "genesis";
        case Meaning::joined: return "joined";
        case Meaning::waiting: return "waiting";
        case Meaning::stale: return "stale";
        case Meaning::duplicate: return "duplicate";
        case Meaning::gap: return "gap of " + number;
        case Meaning::halt: return "halt";
    }
    return "";
}

// `start` or `join` begins a reader, `position` tells where it is; else a frame in hexadecimal.
void verify() {
    huntd::Reader reader;
    for (std::string line; std::getline(std::cin, line);) {
        if (line == "start") {
            reader = huntd::Reader();
        } else if (line == "join") {
            reader = huntd::Reader::joining();
        } else if (line == "position") {
            const huntd::Position& at = reader.position();
            std::printf("%" PRIu64 " %" PRIu64 " %" PRId64 " %016" PRIx64 " %" PRIu64 "\n", at.epoch,
                        at.next_update, at.next_offset, at.chain, reader.gaps());
        } else if (line == "seqs") {
            huntd::Seqs seqs;
            for (const std::uint64_t now : {5, 5, 4}) std::printf("%" PRIu64 " ", seqs.next(1, now));
            std::printf("%" PRIu64 "\n", seqs.next(1, 9));
        } else {
            std::vector<std::uint8_t> record;
            for (std::size_t at = 0; at + 1 < line.size(); at += 2) {
                record.push_back(static_cast<std::uint8_t>(std::stoi(line.substr(at, 2), nullptr, 16)));
            }
            try {
                const auto frame = huntd::parse_frame(record);
                std::puts(frame ? words(reader.fold(*frame)).c_str() : "ignores");
            } catch (const huntd::Unreadable&) {
                std::puts("stops");
            }
        }
    }
}

}  // namespace

int main(int count, char** arguments) try {
    const std::string verb = count > 1 ? arguments[1] : "";
    if (verb == "verify" && count == 2) return verify(), 0;
#ifdef WITH_LIBRDKAFKA
    if (verb == "read" && (count == 4 || count == 5)) {
        return read(arguments[2], arguments[3], count == 5 ? arguments[4] : ""), 0;
    }
    if (verb == "write" && count == 5) {
        return write(arguments[2], arguments[3], std::stoi(arguments[4])), 0;
    }
#endif
    std::fputs("read, write or verify\n", stderr);
    return 2;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
