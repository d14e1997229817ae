// Reads huntd's updates and writes events, in one file. Copy it, and change what you need.
//
//     jars=kafka-clients.jar:slf4j-api.jar:slf4j-nop.jar:lz4-java.jar
//     java -cp $jars             Huntd.java read  BROKERS TOPIC [PRINTED]
//     java -cp $jars             Huntd.java write BROKERS TOPIC PARTITION
//     java -cp kafka-clients.jar Huntd.java verify
//
// slf4j-nop keeps Kafka's client from writing to the terminal: take another binding to read its log.
// `read` prints the updates that are there, once each; `write` sends a join and some moves of one
// player; `verify` is for docs/vectors: frames in, verdicts out. `read` prints a position after the
// updates of each frame, and goes on from the last ones in the file PRINTED, which has what it
// printed before. It reads the binary form, publish.format = "binary"; huntd.py and huntd.mjs show the JSON form too.
// docs/PROTOCOL.md has the reader rule, docs/RULES.md the updates, docs/EVENTS.md the events.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class Huntd {
    // ---- frames --------------------------------------------------------------------------------

    static final int UPDATES = 1, FENCE = 2, SKIP = 3, GENESIS = 4;

    /** Owners raise the epoch by 1 each: if two epochs are further apart, one is no owner's. */
    static final long EPOCH_STEP_MAX = 1L << 32;

    /** For each kind from 1, how many names its code and its short stand for: 0 if for none. */
    // schema: begin, written by `HUNTD_REGENERATE=true cargo test --test host schema`
    static final int[][] NAME_COUNTS = {
        {21, 12}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0},
        {0, 0}, {0, 0}, {0, 0}, {4, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0},
        {3, 0}, {0, 0}, {0, 0}, {0, 0}, {4, 0}, {4, 0}, {6, 0}, {0, 0},
        {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0},
    };
    // schema: end

    static final int FRAME_BYTES_MAX = 921_600, FRAME_UPDATES_MAX = 4096;

    /** A frame that this reader cannot read. It may be a fence, or hold updates without which
     * nothing after it counts: stop. */
    static final class Unreadable extends RuntimeException {
        Unreadable(String what) { super(what); }
    }

    /** Four words, laid out as docs/RULES.md has it: what the chain is made of. Unsigned. */
    record Update(long playerId, long tsUs, long third, long fourth) {
        int kind() { return (int) (third & 0xff); }
        int code() { return (int) (third >>> 8 & 0xff); }
        int shortField() { return (int) (third >>> 16 & 0xffff); }
        long word() { return third >>> 32; }
        int low() { return (int) fourth; }
        int high() { return (int) (fourth >>> 32); }
        long longField() { return fourth; }

        /** Whether the kind, and each number that stands for a name, has one. */
        boolean isKnown() {
            if (kind() < 1 || kind() > NAME_COUNTS.length) return false;
            int[] names = NAME_COUNTS[kind() - 1];
            return (names[0] == 0 || code() < names[0])
                    && (names[1] == 0 || shortField() < names[1]);
        }
    }

    /** A fence's random id. */
    record FenceId(long low, long high) {
        static final FenceId NONE = new FenceId(0, 0);
    }

    static final int VERSION = 2;

    /** One record of the output topic. Epochs, numbers and chains are unsigned. */
    record Frame(int kind, long epoch, long firstUpdate, long nextOffset, int ruleset, long chain,
                 FenceId fenceId, List<Update> updates) {
        /** A binary frame; empty: the record is no frame of any version, so pass it over. */
        static Optional<Frame> parse(byte[] record) {
            byte[] begins = record == null ? new byte[0] : Arrays.copyOf(record, Math.min(record.length, 16));
            String head = new String(begins, StandardCharsets.ISO_8859_1);
            if (head.startsWith("{\"version\":") || head.startsWith("{\"kind\":\"")) {
                throw new Unreadable("a JSON frame; set publish.format = \"binary\"");
            }
            if (!head.startsWith("HNTF")) return Optional.empty();
            if (record.length < 5 || record[4] != VERSION) throw new Unreadable("a frame of another version");
            if (record.length < 64 || record.length > FRAME_BYTES_MAX) {
                throw new Unreadable("a frame that is too short or too long");
            }
            ByteBuffer in = ByteBuffer.wrap(record).order(ByteOrder.LITTLE_ENDIAN);
            int kind = record[5];
            long count = Integer.toUnsignedLong(in.getInt(24));
            if (in.getShort(6) != 0 || kind < UPDATES || kind > GENESIS
                    || record.length != 64 + 32 * count) {
                throw new Unreadable("a frame of an unknown kind, with unknown flags, or of another length");
            }
            List<Update> updates = new ArrayList<>((int) count);
            for (int at = 64; at < record.length; at += 32) {
                Update update = new Update(in.getLong(at), in.getLong(at + 8), in.getLong(at + 16),
                        in.getLong(at + 24));
                if (!update.isKnown()) {
                    throw new Unreadable("an update of an unknown kind, or with an unknown name");
                }
                updates.add(update);
            }
            FenceId fence = new FenceId(in.getLong(48), in.getLong(56));
            long first = in.getLong(16), nextOffset = in.getLong(32);
            if (count > FRAME_UPDATES_MAX || count > 0 && kind != UPDATES || !fence.equals(FenceId.NONE) && kind != FENCE
                    || nextOffset < (kind == FENCE ? -1 : 0)
                    || Long.compareUnsigned(first + count, first) < 0) {
                throw new Unreadable("a frame with a field out of range");
            }
            return Optional.of(new Frame(kind, in.getLong(8), first, nextOffset, in.getInt(28),
                    in.getLong(40), fence, updates));
        }

        boolean isPlaced() { return kind == FENCE && nextOffset >= 0; }
    }

    /** The chain after one more update. */
    static long chained(long chain, Update update) {
        long whoWhen = folded(update.playerId ^ 0x6a09e667f3bcc909L, update.tsUs ^ 0xbb67ae8584caa73bL);
        long what = folded(update.third ^ 0x3c6ef372fe94f82cL, update.fourth ^ 0xa54ff53a5f1d36f1L);
        return folded(chain + whoWhen + what ^ 0x6a09e667f3bcc909L, 0xa54ff53a5f1d36f1L);
    }

    /** The two halves of an unsigned 128-bit product in one word. */
    private static long folded(long a, long b) {
        // The high half of an unsigned product, out of that of a signed one.
        long high = Math.multiplyHigh(a, b) + (a >> 63 & b) + (b >> 63 & a);
        return a * b ^ high;
    }

    // ---- the reader rule -----------------------------------------------------------------------

    /** What a frame means, and its new updates. */
    record Verdict(String words, List<Update> updates) {
        Verdict(String words) { this(words, List.of()); }
    }

    /** Folds the frames of one output partition, in the order of the log. */
    static final class Reader {
        /** Where it stands: store these four with the offset of the next record, in one step with
         * what you make of the updates. */
        long epoch, nextUpdate, nextOffset, chain;
        long gaps;
        private FenceId fenceId = FenceId.NONE;
        private boolean isHalted, hasJoined = true, isAtFence;
        /** The number of the first update after the fence at which it has joined. */
        private long joinedAt;

        /** At the start of the log; or anywhere, where it waits for a fence to join at. */
        static Reader start() { return new Reader(); }

        /** Where another one stood. */
        static Reader at(long epoch, long nextUpdate, long nextOffset, long chain) {
            Reader reader = new Reader();
            reader.epoch = epoch;
            reader.nextUpdate = nextUpdate;
            reader.nextOffset = nextOffset;
            reader.chain = chain;
            return reader;
        }

        static Reader joining() {
            Reader reader = new Reader();
            reader.hasJoined = false;
            return reader;
        }

        /** A note, of epoch 0, says nothing about the reader's. */
        private boolean isFarFrom(Frame frame) {
            boolean isAbove = Long.compareUnsigned(frame.epoch, epoch) > 0;
            long step = isAbove ? frame.epoch - epoch : epoch - frame.epoch;
            return frame.epoch != 0 && Long.compareUnsigned(step, EPOCH_STEP_MAX) > 0;
        }

        Verdict fold(Frame frame) {
            if (isHalted) return new Verdict("halt");
            if (isFarFrom(frame)) {
                if (!hasJoined || hasAcceptedNothing()) {
                    // Either epoch may be no owner's: the owner's next frame will tell.
                    leaveFence();
                    epoch = frame.epoch;
                    fenceId = frame.fenceId;
                } else if (Long.compareUnsigned(frame.epoch, epoch) > 0) {
                    return new Verdict("stale");
                }
            }
            if (isAtFence && (isOvertaken(frame) || isElsewhere(frame))) leaveFence();
            if (!hasJoined) return join(frame);
            if (frame.kind == FENCE) {
                raise(frame.epoch, frame.fenceId);
                return new Verdict("fence");
            }
            if (Long.compareUnsigned(frame.epoch, epoch) < 0) return new Verdict("stale");
            raise(frame.epoch, FenceId.NONE);
            if (frame.kind == SKIP) return new Verdict("skip " + (frame.nextOffset - 1));
            if (frame.kind == GENESIS) return genesis(frame);
            if (frame.updates.isEmpty()) {
                if (frame.firstUpdate == nextUpdate) {
                    nextOffset = Math.max(nextOffset, frame.nextOffset);
                }
                return new Verdict("progress");
            }
            return accept(frame);
        }

        private Verdict accept(Frame frame) {
            long end = frame.firstUpdate + frame.updates.size();
            if (Long.compareUnsigned(end, nextUpdate) <= 0) return new Verdict("duplicate");
            if (Long.compareUnsigned(frame.firstUpdate, nextUpdate) > 0) {
                gaps++;
                long missing = frame.firstUpdate - nextUpdate;
                return new Verdict("gap of " + Long.toUnsignedString(missing));
            }
            int from = (int) (nextUpdate - frame.firstUpdate);
            List<Update> added = frame.updates.subList(from, frame.updates.size());
            long continued = chain;
            for (Update update : added) continued = chained(continued, update);
            if (continued != frame.chain) return differ();
            chain = continued;
            nextUpdate = end;
            nextOffset = Math.max(nextOffset, frame.nextOffset);
            return new Verdict("accepted from " + from, added);
        }

        private Verdict genesis(Frame frame) {
            if (frame.firstUpdate != nextUpdate) return new Verdict("duplicate");
            if (frame.chain != chain) return differ();
            nextOffset = frame.nextOffset;
            return new Verdict("genesis");
        }

        private Verdict differ() {
            if (hasAcceptedNothing()) {
                leaveFence();
                return new Verdict("waiting");
            }
            isHalted = true;
            return new Verdict("halt");
        }

        private Verdict join(Frame frame) {
            raise(frame.epoch, frame.fenceId);
            if (!frame.isPlaced() || Long.compareUnsigned(frame.epoch, epoch) < 0) {
                return new Verdict("waiting");
            }
            epoch = frame.epoch;
            nextUpdate = frame.firstUpdate;
            nextOffset = frame.nextOffset;
            chain = frame.chain;
            fenceId = frame.fenceId;
            joinedAt = frame.firstUpdate;
            hasJoined = isAtFence = true;
            return new Verdict("joined");
        }

        private void leaveFence() { hasJoined = isAtFence = false; }

        private void raise(long higher, FenceId id) {
            if (Long.compareUnsigned(higher, epoch) > 0) {
                epoch = higher;
                fenceId = id;
            }
        }

        private boolean isOvertaken(Frame frame) {
            boolean takesOver = frame.kind == FENCE && frame.nextOffset < 0;
            boolean isAnother =
                    frame.isPlaced() && frame.epoch == epoch && !frame.fenceId.equals(fenceId);
            boolean isNewer = Long.compareUnsigned(frame.epoch, epoch) > 0;
            return isAnother || isNewer && !(takesOver && frame.epoch == epoch + 1);
        }

        private boolean isElsewhere(Frame frame) {
            boolean differs = frame.firstUpdate != nextUpdate || frame.nextOffset < nextOffset;
            return hasAcceptedNothing() && frame.isPlaced() && frame.epoch == epoch && differs;
        }

        private boolean hasAcceptedNothing() { return isAtFence && joinedAt == nextUpdate; }
    }

    // ---- events --------------------------------------------------------------------------------

    /** A {@code seq} for each event of a player that survives restarts: the time, or one more. */
    static final class Seqs {
        private final Map<Long, Long> last = new HashMap<>();

        long next(long player, long nowUs) {
            return last.merge(player, nowUs, (before, now) -> Math.max(before + 1, now));
        }

        /** One event as a record's value; {@code fields} are further members of the object. */
        byte[] event(String type, long player, String fields) {
            long now = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
            String event = "{\"type\":\"%s\",\"player_id\":%s,\"seq\":%d,\"ts_us\":%d%s}".formatted(
                    type, Long.toUnsignedString(player), next(player, now), now, fields);
            return event.getBytes(StandardCharsets.UTF_8);
        }
    }

    // ---- Kafka ---------------------------------------------------------------------------------

    static void read(String brokers, String topic, Optional<Path> printed) throws IOException {
        Map<String, Object> config = Map.of("bootstrap.servers", brokers,
                "enable.auto.commit", false, "isolation.level", "read_uncommitted",
                "auto.offset.reset", "none", // Join if the record at a position was deleted.
                "key.deserializer", ByteArrayDeserializer.class,
                "value.deserializer", ByteArrayDeserializer.class);
        try (var consumer = new KafkaConsumer<byte[], byte[]>(config)) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                    .map(info -> new TopicPartition(topic, info.partition())).toList();
            if (partitions.isEmpty()) throw new IllegalStateException("there is no topic " + topic);
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<Integer, Reader> readers = new HashMap<>();
            for (TopicPartition p : partitions) readers.put(p.partition(), Reader.start());
            String before = printed.isPresent() ? Files.readString(printed.get()) : "";
            // A line that was cut off, as by a kill, counts as not printed.
            if (!before.isEmpty() && !before.endsWith("\n")) System.out.println();
            for (String line : before.lines().toList()) {
                String[] at = line.split(" ");
                if (at.length != 7 || !at[1].equals("position") || at[6].length() != 16) continue;
                int partition = Integer.parseInt(at[0]);
                consumer.seek(new TopicPartition(topic, partition), Long.parseLong(at[2]));
                readers.put(partition, Reader.at(Long.parseUnsignedLong(at[3]),
                        Long.parseUnsignedLong(at[4]), Long.parseLong(at[5]),
                        Long.parseUnsignedLong(at[6], 16)));
            }
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
                long reached = partitions.stream().mapToLong(consumer::position).sum();
                for (var message : consumer.poll(Duration.ofSeconds(10))) {
                    printAccepted(message, readers.get(message.partition()));
                }
                // A transaction marker moves a position, too, although it is not a record.
                if (partitions.stream().mapToLong(consumer::position).sum() == reached) {
                    throw new IllegalStateException("the brokers do not answer");
                }
            }
        }
    }

    /** Prints the new updates of a record and the position after them. Your program stores both in
     * one step. */
    static void printAccepted(ConsumerRecord<byte[], byte[]> message, Reader reader) {
        int partition = message.partition();
        Optional<Frame> frame = Frame.parse(message.value());
        if (frame.isEmpty()) return;
        Verdict verdict = reader.fold(frame.get());
        if (verdict.words.startsWith("gap")) {
            System.err.printf("partition %d: %s%n", partition, verdict.words);
        }
        if (verdict.words.equals("halt")) {
            throw new IllegalStateException("partition " + partition + ": the chain does not match");
        }
        if (verdict.updates.isEmpty()) return;
        long number = reader.nextUpdate - verdict.updates.size();
        for (Update update : verdict.updates) {
            System.out.printf("%d %s kind %d player %s%n", partition,
                    Long.toUnsignedString(number++), update.kind(),
                    Long.toUnsignedString(update.playerId()));
        }
        System.out.printf("%d position %d %s %s %d %016x%n", partition, message.offset() + 1,
                Long.toUnsignedString(reader.epoch), Long.toUnsignedString(reader.nextUpdate),
                reader.nextOffset, reader.chain);
    }

    static void write(String brokers, String topic, int partition) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", brokers, "acks", "all",
                "enable.idempotence", true, "key.serializer", ByteArraySerializer.class,
                "value.serializer", ByteArraySerializer.class);
        Seqs seqs = new Seqs();
        long player = 76561199000000001L; // none of `huntd load`
        try (var producer = new KafkaProducer<byte[], byte[]>(config)) {
            // An event would wait for a partition that the topic does not have.
            int partitions = producer.partitionsFor(topic).size();
            if (partition >= partitions) {
                throw new IllegalArgumentException(topic + " has " + partitions + " partitions");
            }
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int step = 0; step < 5; step++) {
                String fields = ",\"x\":%d,\"y\":2000".formatted(1000 + 10 * step);
                byte[] value = seqs.event(step == 0 ? "join" : "move", player, fields);
                // The partition is the zone: always name it, and never let a partitioner choose.
                sent.add(producer.send(new ProducerRecord<>(topic, partition, null, value)));
            }
            for (Future<RecordMetadata> done : sent) done.get();
        }
    }

    /** {@code start} or {@code join} begins a reader, {@code position} tells where it is; any other
     * line is a frame in hexadecimal. */
    static void verify() throws IOException {
        Reader reader = Reader.start();
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            switch (line) {
                case "start" -> reader = Reader.start();
                case "join" -> reader = Reader.joining();
                case "position" -> System.out.printf("%s %s %d %016x %d%n",
                        Long.toUnsignedString(reader.epoch),
                        Long.toUnsignedString(reader.nextUpdate), reader.nextOffset, reader.chain,
                        reader.gaps);
                case "seqs" -> {
                    Seqs seqs = new Seqs();
                    System.out.printf("%d %d %d %d%n", seqs.next(1, 5), seqs.next(1, 5),
                            seqs.next(1, 4), seqs.next(1, 9));
                }
                default -> {
                    try {
                        Optional<Frame> frame = Frame.parse(HexFormat.of().parseHex(line));
                        System.out.println(
                                frame.isPresent() ? reader.fold(frame.get()).words : "ignores");
                    } catch (Unreadable frame) {
                        System.out.println("stops");
                    }
                }
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        switch (arguments.length == 0 ? "" : arguments[0]) {
            case "read" -> read(arguments[1], arguments[2],
                    arguments.length > 3 ? Optional.of(Path.of(arguments[3])) : Optional.empty());
            case "write" -> write(arguments[1], arguments[2], Integer.parseInt(arguments[3]));
            case "verify" -> verify();
            default -> System.exit(2);
        }
    }
}
