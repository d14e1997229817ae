// The reference job on Kafka Streams: a processor a partition that parses, applies and fills a
// frame, and a sink that writes to the partition of the same number.

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;

public final class Reference {
    /** Health of an unhurt player. */
    static final long HEALTH = 100;

    static final JsonFactory JSON = new JsonFactory();

    /** All zones that were ever made, for the report at the end. */
    static final List<Zone> ZONES = new CopyOnWriteArrayList<>();

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 4) {
            System.err.println("BROKERS INPUT OUTPUT PARTITIONS");
            System.exit(2);
        }
        String input = arguments[1];
        String output = arguments[2];
        Path folder = Files.createTempDirectory("huntd-reference-");

        // The key says the partition and is not written.
        Serializer<Integer> noKey = (topic, key) -> null;
        StreamPartitioner<Integer, byte[]> samePartition =
            (topic, key, value, partitions) -> Optional.of(Set.of(key));
        Topology topology = new Topology();
        topology.addSource("events", new ByteArrayDeserializer(), new ByteArrayDeserializer(), input);
        topology.addProcessor("zone", Zone::new, "events");
        topology.addSink("updates", output, noKey, new ByteArraySerializer(), samePartition, "zone");

        KafkaStreams streams = new KafkaStreams(topology, settings(arguments[0], output, folder));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        streams.start();
        // The process that started this one closes its standard input to end it.
        InputStream end = System.in;
        end.transferTo(OutputStream.nullOutputStream());
        streams.close(Duration.ofSeconds(30));
        report();
        try (var files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }

    static Properties settings(String brokers, String output, Path folder) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, output + "-reference");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, brokers);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, folder.toString());
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, Runtime.getRuntime().availableProcessors());
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 10_000);
        // A frame that is not full leaves at the next punctuation, which waits for a poll.
        settings.put(StreamsConfig.POLL_MS_CONFIG, 1);
        settings.put(StreamsConfig.BUFFERED_RECORDS_PER_PARTITION_CONFIG, 20_000);
        consumer(settings, ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        consumer(settings, ConsumerConfig.FETCH_MIN_BYTES_CONFIG, 1);
        consumer(settings, ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, 100);
        consumer(settings, ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, 1 << 20);
        consumer(settings, ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 20_000);
        consumer(settings, ConsumerConfig.CHECK_CRCS_CONFIG, false);
        producer(settings, ProducerConfig.ACKS_CONFIG, "all");
        // Frames are batches already: the default of Streams waits 100 ms for more.
        producer(settings, ProducerConfig.LINGER_MS_CONFIG, 0);
        producer(settings, ProducerConfig.COMPRESSION_TYPE_CONFIG, "lz4");
        producer(settings, ProducerConfig.BATCH_SIZE_CONFIG, 1 << 20);
        producer(settings, ProducerConfig.MAX_REQUEST_SIZE_CONFIG, 2 << 20);
        producer(settings, ProducerConfig.BUFFER_MEMORY_CONFIG, 64 << 20);
        return settings;
    }

    static void consumer(Properties settings, String name, Object value) {
        settings.put(StreamsConfig.consumerPrefix(name), value);
    }

    static void producer(Properties settings, String name, Object value) {
        settings.put(StreamsConfig.producerPrefix(name), value);
    }

    static void report() {
        long events = 0;
        long rejects = 0;
        long digest = 0;
        for (Zone zone : ZONES) {
            events += zone.events;
            rejects += zone.rejects;
            digest += zone.digest();
        }
        System.out.printf("events=%d rejects=%d digest=%016x%n", events, rejects, digest);
    }

    /** Sides of a tile are 1,024 cm, and 256 tiles are the side of a zone. */
    static long tile(long x, long y) {
        return (y >> 10) * 256 + (x >> 10);
    }

    /** What is known of a player. */
    static final class Player {
        long seq;
        long x;
        long y;
        long tile;
        long heading;
        long moves;
        long turns;
        long shots;
        long loots;
    }

    /** The players of one partition. */
    static final class Zone implements Processor<byte[], byte[], Integer, byte[]> {
        final HashMap<Long, Player> players = new HashMap<>();
        final Frame frame = new Frame();
        long hunts;
        long events;
        long rejects;
        long nextOffset;
        int partition;
        ProcessorContext<Integer, byte[]> context;

        // The event that is being applied.
        String type;
        long playerId;
        long seq;
        long tsUs;
        long x;
        long y;
        long heading;
        long weapon;
        long hunt;
        long treasures;
        long durationMs;

        @Override
        public void init(ProcessorContext<Integer, byte[]> context) {
            this.context = context;
            partition = context.taskId().partition();
            ZONES.add(this);
            context.schedule(Duration.ofMillis(2), PunctuationType.WALL_CLOCK_TIME, time -> flush());
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            nextOffset = context.recordMetadata().orElseThrow().offset() + 1;
            try {
                parse(record.value());
                apply();
            } catch (IOException error) {
                rejects++;
            }
            if (frame.isFull()) {
                flush();
            }
        }

        @Override
        public void close() {
            flush();
        }

        void flush() {
            if (!frame.isEmpty()) {
                byte[] sealed = frame.seal(nextOffset);
                context.forward(new Record<>(partition, sealed, System.currentTimeMillis()));
            }
        }

        void parse(byte[] value) throws IOException {
            type = "";
            playerId = seq = x = y = heading = weapon = hunt = treasures = durationMs = 0;
            try (JsonParser parser = JSON.createParser(value)) {
                if (parser.nextToken() != JsonToken.START_OBJECT) {
                    throw new IOException("no object");
                }
                for (String key = parser.nextFieldName(); key != null; key = parser.nextFieldName()) {
                    parser.nextToken();
                    switch (key) {
                        case "type" -> type = parser.getText();
                        case "player_id" -> playerId = parser.getLongValue();
                        case "seq" -> seq = parser.getLongValue();
                        case "ts_us" -> tsUs = parser.getLongValue();
                        case "x" -> x = parser.getLongValue();
                        case "y" -> y = parser.getLongValue();
                        case "heading" -> heading = parser.getLongValue();
                        case "weapon" -> weapon = parser.getLongValue();
                        case "hunt" -> hunt = parser.getLongValue();
                        case "treasures" -> treasures = parser.getLongValue();
                        case "duration_ms" -> durationMs = parser.getLongValue();
                        default -> parser.skipChildren();
                    }
                }
            }
        }

        void apply() throws IOException {
            if (type.equals("hunt_start")) {
                events++;
                hunts++;
                frame.begin("hunt_started", 0, tsUs);
                frame.field("treasures", treasures);
                frame.field("hunt", hunt);
                frame.field("duration_ms", durationMs);
                frame.end();
                return;
            }
            Player player = players.computeIfAbsent(playerId, id -> new Player());
            player.seq = Math.max(player.seq, seq);
            switch (type) {
                case "join" -> {
                    place(player);
                    frame.begin("joined", playerId, tsUs);
                    frame.field("health", HEALTH);
                    frame.field("x", x);
                    frame.field("y", y);
                }
                case "move" -> {
                    player.moves++;
                    place(player);
                    frame.begin("moved", playerId, tsUs);
                    frame.field("tile", player.tile);
                    frame.field("x", x);
                    frame.field("y", y);
                }
                case "rotate" -> {
                    player.turns++;
                    player.heading = heading;
                    frame.begin("rotated", playerId, tsUs);
                    frame.field("heading", heading);
                }
                case "shoot" -> {
                    player.shots++;
                    frame.begin("shot", playerId, tsUs);
                    frame.field("weapon", weapon);
                    frame.field("heading", player.heading);
                    frame.field("distance_cm", 0);
                }
                case "loot" -> {
                    player.loots++;
                    frame.begin("item_gained", playerId, tsUs);
                    frame.field("item", 1);
                    frame.field("gained", 1);
                    frame.field("held", player.loots);
                }
                default -> throw new IOException("no known type");
            }
            events++;
            frame.end();
        }

        void place(Player player) {
            player.x = x;
            player.y = y;
            player.tile = tile(x, y);
        }

        /** A hash of all that is known, whatever the order of the players. */
        long digest() {
            long digest = hunts;
            for (var entry : players.entrySet()) {
                Player p = entry.getValue();
                long hash = entry.getKey();
                long[] counts = {p.seq, p.x, p.y, p.tile, p.heading, p.moves, p.turns, p.shots, p.loots};
                for (long value : counts) {
                    hash = (hash ^ value) * 0x100_0000_01b3L;
                    hash ^= hash >>> 32;
                }
                digest += hash;
            }
            return digest;
        }
    }

    /** A frame of updates of one partition as JSON, the bytes that huntd writes too. */
    static final class Frame {
        /** Updates in one frame at most, as in huntd. */
        static final int UPDATES_MAX = 4096;

        /** Room for the fields that stand before the updates and are known last. */
        static final int HEAD_BYTES = 256;

        /** Bytes of the longest update. */
        static final int UPDATE_BYTES_MAX = 256;

        static final byte[] KIND = ascii("{\"kind\":\"");
        static final byte[] PLAYER = ascii("\",\"player_id\":\"");
        static final byte[] TIME = ascii("\",\"ts_us\":");

        final HashMap<String, byte[]> names = new HashMap<>();
        final byte[] digits = new byte[20];
        byte[] bytes = new byte[64 << 10];
        int length = HEAD_BYTES;
        int count;
        long firstUpdate;

        boolean isEmpty() {
            return count == 0;
        }

        boolean isFull() {
            return count == UPDATES_MAX;
        }

        void begin(String kind, long playerId, long tsUs) {
            if (bytes.length - length < UPDATE_BYTES_MAX) {
                bytes = java.util.Arrays.copyOf(bytes, 2 * bytes.length);
            }
            if (count > 0) {
                bytes[length++] = ',';
            }
            count++;
            text(KIND);
            text(names.computeIfAbsent(kind, Frame::ascii));
            text(PLAYER);
            number(playerId);
            text(TIME);
            number(tsUs);
        }

        void field(String name, long value) {
            text(names.computeIfAbsent(name, key -> ascii(",\"" + key + "\":")));
            number(value);
        }

        void end() {
            bytes[length++] = '}';
        }

        /** The frame for all input up to nextOffset; the next one follows it. */
        byte[] seal(long nextOffset) {
            bytes[length++] = ']';
            bytes[length++] = '}';
            byte[] head = ascii("{\"version\":2,\"kind\":\"updates\",\"epoch\":1,\"first_update\":" + firstUpdate
                + ",\"count\":" + count + ",\"next_offset\":" + nextOffset
                + ",\"ruleset\":0,\"chain\":\"0000000000000000\",\"updates\":[");
            int start = HEAD_BYTES - head.length;
            System.arraycopy(head, 0, bytes, start, head.length);
            byte[] sealed = java.util.Arrays.copyOfRange(bytes, start, length);
            firstUpdate += count;
            count = 0;
            length = HEAD_BYTES;
            return sealed;
        }

        void text(byte[] text) {
            System.arraycopy(text, 0, bytes, length, text.length);
            length += text.length;
        }

        void number(long value) {
            if (value < 0) {
                bytes[length++] = '-';
                value = -value;
            }
            int at = digits.length;
            do {
                digits[--at] = (byte) ('0' + value % 10);
                value /= 10;
            } while (value != 0);
            System.arraycopy(digits, at, bytes, length, digits.length - at);
            length += digits.length - at;
        }

        static byte[] ascii(String text) {
            return text.getBytes(StandardCharsets.US_ASCII);
        }
    }
}
