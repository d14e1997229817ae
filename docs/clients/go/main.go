// Reads huntd's updates and writes events, in one file. Copy it, and change what you need.
//
//	go run . read  BROKERS TOPIC [PRINTED]  print the updates that come, once each
//	go run . write BROKERS TOPIC PARTITION  send a join and some moves of one player
//	go run . verify                         for docs/vectors: frames in, verdicts out
//
// `read` prints a position after the updates of each frame, and goes on from the last ones in the
// file PRINTED, which has what it printed before.
//
// It reads the binary form, publish.format = "binary", which is the quicker one by far; huntd.py
// and huntd.mjs show the JSON form too. docs/PROTOCOL.md has the reader rule, docs/RULES.md the
// updates, docs/EVENTS.md the events.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ---- frames ------------------------------------------------------------------------------------

// Kinds of frames.
const (
	Updates = 1 + iota
	Fence
	Skip
	Genesis
)

// Owners raise the epoch by 1 each: if two epochs are further apart, one is no owner's.
const epochStepMax = 1 << 32

// nameCounts has, for each kind from 1, how many names its code and its short stand for: 0 if for none.
// schema: begin, written by `HUNTD_REGENERATE=true cargo test --test host schema`
var nameCounts = [][2]uint16{
	{21, 12}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0},
	{0, 0}, {0, 0}, {0, 0}, {4, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0},
	{3, 0}, {0, 0}, {0, 0}, {0, 0}, {4, 0}, {4, 0}, {6, 0}, {0, 0},
	{0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0},
}
// schema: end

// Update is four words, laid out as docs/RULES.md has it. They are what the chain is made of.
type Update [4]uint64

func (u Update) PlayerID() uint64 { return u[0] }
func (u Update) TsUs() int64      { return int64(u[1]) }
func (u Update) Kind() uint8      { return uint8(u[2]) }
func (u Update) Code() uint8      { return uint8(u[2] >> 8) }
func (u Update) Short() uint16    { return uint16(u[2] >> 16) }
func (u Update) Word() uint32     { return uint32(u[2] >> 32) }
func (u Update) Low() uint32      { return uint32(u[3]) }
func (u Update) High() uint32     { return uint32(u[3] >> 32) }
func (u Update) Long() uint64     { return u[3] }

// isKnown is whether the kind, and each number that stands for a name, has one.
func (u Update) isKnown() bool {
	if u.Kind() < 1 || int(u.Kind()) > len(nameCounts) {
		return false
	}
	names := nameCounts[u.Kind()-1]
	return (names[0] == 0 || uint16(u.Code()) < names[0]) && (names[1] == 0 || u.Short() < names[1])
}

// FrameID is a fence's random id.
type FrameID [16]byte

// Frame is one record of the output topic.
type Frame struct {
	Kind        uint8
	Epoch       uint64
	FirstUpdate uint64
	NextOffset  int64
	Ruleset     uint32
	Chain       uint64
	FenceID     FrameID
	Updates     []Update
}

// ErrNoFrame says that a record is no frame of any version: pass it over.
var ErrNoFrame = errors.New("no frame")

const (
	version         = 2
	frameBytesMax   = 921_600
	frameUpdatesMax = 4096
)

// ParseFrame reads a binary frame. ErrNoFrame: the record is none. Any other error: it is one that
// cannot be read. It may be a fence, or hold updates without which nothing after it counts: stop.
func ParseFrame(record []byte) (Frame, error) {
	var frame Frame
	for _, head := range []string{"{\"version\":", "{\"kind\":\""} {
		if bytes.HasPrefix(record, []byte(head)) {
			return frame, errors.New("a JSON frame; set publish.format = \"binary\"")
		}
	}
	switch {
	case !bytes.HasPrefix(record, []byte("HNTF")):
		return frame, ErrNoFrame
	case len(record) < 5 || record[4] != version:
		return frame, errors.New("a frame of another version")
	case len(record) < 64 || len(record) > frameBytesMax:
		return frame, errors.New("a frame that is too short or too long")
	case record[5] < Updates || record[5] > Genesis || record[6]|record[7] != 0:
		return frame, errors.New("a frame of an unknown kind, or with unknown flags")
	}
	word := binary.LittleEndian
	count := int(word.Uint32(record[24:]))
	if len(record) != 64+32*count {
		return frame, errors.New("a frame of another length than its count says")
	}
	frame.Kind = record[5]
	frame.Epoch = word.Uint64(record[8:])
	frame.FirstUpdate = word.Uint64(record[16:])
	frame.Ruleset = word.Uint32(record[28:])
	frame.NextOffset = int64(word.Uint64(record[32:]))
	frame.Chain = word.Uint64(record[40:])
	copy(frame.FenceID[:], record[48:64])
	offsetMin := int64(0)
	if frame.Kind == Fence {
		offsetMin = -1
	}
	if count > frameUpdatesMax || (count > 0 && frame.Kind != Updates) || (frame.FenceID != FrameID{} && frame.Kind != Fence) ||
		frame.NextOffset < offsetMin || frame.FirstUpdate+uint64(count) < frame.FirstUpdate {
		return frame, errors.New("a frame with a field out of range")
	}
	frame.Updates = make([]Update, count)
	for at := range frame.Updates {
		for part := range 4 {
			frame.Updates[at][part] = word.Uint64(record[64+32*at+8*part:])
		}
		if !frame.Updates[at].isKnown() {
			return frame, errors.New("an update of an unknown kind, or with an unknown name")
		}
	}
	return frame, nil
}

// Chained is the chain after one more update.
func Chained(chain uint64, update Update) uint64 {
	whoWhen := folded(update[0]^0x6a09e667f3bcc909, update[1]^0xbb67ae8584caa73b)
	what := folded(update[2]^0x3c6ef372fe94f82c, update[3]^0xa54ff53a5f1d36f1)
	return folded((chain+whoWhen+what)^0x6a09e667f3bcc909, 0xa54ff53a5f1d36f1)
}

// folded is the two halves of a 128-bit product in one word.
func folded(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return low ^ high
}

// ---- the reader rule ---------------------------------------------------------------------------

// Position is where a reader stands. Store it with the offset of the next record, in one step with
// what you make of the updates.
type Position struct {
	Epoch, NextUpdate uint64
	NextOffset        int64
	Chain             uint64
}

type footing int

const (
	sure footing = iota
	atFence
	none
)

// Reader folds the frames of one output partition, in the order of the log. Its zero value begins
// at the log's start, one with a stored Position there.
type Reader struct {
	Position
	Gaps    uint64
	fenceID FrameID
	halted  bool
	footing footing
	// The number of the first update after the fence at which it has joined.
	joinedAt uint64
}

// Joining is a reader that begins anywhere, and waits for a fence that says where the shard stands.
func Joining() *Reader { return &Reader{footing: none} }

// Fold gives the verdict on the next frame, and its new updates.
func (r *Reader) Fold(frame *Frame) (string, []Update) {
	if r.halted {
		return "halt", nil
	}
	// A note, of epoch 0, says nothing about the reader's.
	if frame.Epoch != 0 && max(frame.Epoch, r.Epoch)-min(frame.Epoch, r.Epoch) > epochStepMax {
		if r.footing == none || r.acceptedNothing() {
			// Either epoch may be no owner's: the owner's next frame will tell.
			r.footing, r.Epoch, r.fenceID = none, frame.Epoch, frame.FenceID
		} else if frame.Epoch > r.Epoch {
			return "stale", nil
		}
	}
	if r.footing == atFence && (r.overtaken(frame) || r.elsewhere(frame)) {
		r.footing = none
	}
	if r.footing == none {
		return r.join(frame), nil
	}
	if frame.Kind == Fence {
		r.raise(frame.Epoch, frame.FenceID)
		return "fence", nil
	}
	if frame.Epoch < r.Epoch {
		return "stale", nil
	}
	r.raise(frame.Epoch, FrameID{})
	switch {
	case frame.Kind == Skip:
		return fmt.Sprintf("skip %d", frame.NextOffset-1), nil
	case frame.Kind == Genesis:
		return r.genesis(frame), nil
	case len(frame.Updates) == 0:
		if frame.FirstUpdate == r.NextUpdate {
			r.NextOffset = max(r.NextOffset, frame.NextOffset)
		}
		return "progress", nil
	}
	return r.accept(frame)
}

func (r *Reader) accept(frame *Frame) (string, []Update) {
	end := frame.FirstUpdate + uint64(len(frame.Updates))
	if end <= r.NextUpdate {
		return "duplicate", nil
	}
	if frame.FirstUpdate > r.NextUpdate {
		r.Gaps++
		return fmt.Sprintf("gap of %d", frame.FirstUpdate-r.NextUpdate), nil
	}
	from := r.NextUpdate - frame.FirstUpdate
	chain := r.Chain
	for _, update := range frame.Updates[from:] {
		chain = Chained(chain, update)
	}
	if chain != frame.Chain {
		return r.differ(), nil
	}
	r.Chain, r.NextUpdate = chain, end
	r.NextOffset = max(r.NextOffset, frame.NextOffset)
	return fmt.Sprintf("accepted from %d", from), frame.Updates[from:]
}

func (r *Reader) genesis(frame *Frame) string {
	if frame.FirstUpdate != r.NextUpdate {
		return "duplicate"
	}
	if frame.Chain != r.Chain {
		return r.differ()
	}
	r.NextOffset = frame.NextOffset
	return "genesis"
}

func (r *Reader) differ() string {
	if r.acceptedNothing() {
		r.footing = none
		return "waiting"
	}
	r.halted = true
	return "halt"
}

func (r *Reader) join(frame *Frame) string {
	r.raise(frame.Epoch, frame.FenceID)
	if !placed(frame) || frame.Epoch < r.Epoch {
		return "waiting"
	}
	r.Position = Position{frame.Epoch, frame.FirstUpdate, frame.NextOffset, frame.Chain}
	r.fenceID, r.footing, r.joinedAt = frame.FenceID, atFence, frame.FirstUpdate
	return "joined"
}

func (r *Reader) raise(epoch uint64, id FrameID) {
	if epoch > r.Epoch {
		r.Epoch, r.fenceID = epoch, id
	}
}

func (r *Reader) overtaken(frame *Frame) bool {
	takesOver := frame.Kind == Fence && frame.NextOffset < 0
	another := placed(frame) && frame.Epoch == r.Epoch && frame.FenceID != r.fenceID
	return another || (frame.Epoch > r.Epoch && !(takesOver && frame.Epoch == r.Epoch+1))
}

func (r *Reader) elsewhere(frame *Frame) bool {
	differs := frame.FirstUpdate != r.NextUpdate || frame.NextOffset < r.NextOffset
	return r.acceptedNothing() && placed(frame) && frame.Epoch == r.Epoch && differs
}

func (r *Reader) acceptedNothing() bool {
	return r.footing == atFence && r.joinedAt == r.NextUpdate
}

func placed(frame *Frame) bool { return frame.Kind == Fence && frame.NextOffset >= 0 }

// ---- events ------------------------------------------------------------------------------------

// Seqs gives each event of a player a seq that survives restarts: the time, or one more.
type Seqs map[uint64]uint64

func (s Seqs) Next(player, nowUs uint64) uint64 {
	s[player] = max(s[player]+1, nowUs)
	return s[player]
}

// Event is one event as a record's value.
func (s Seqs) Event(kind string, player uint64, fields map[string]any) []byte {
	now := time.Now().UnixMicro()
	event := map[string]any{
		"type": kind, "player_id": player, "seq": s.Next(player, uint64(now)), "ts_us": now,
	}
	for name, value := range fields {
		event[name] = value
	}
	value, err := json.Marshal(event)
	if err != nil {
		panic(err) // Numbers and texts always have a JSON form.
	}
	return value
}

// ---- Kafka -------------------------------------------------------------------------------------

func read(brokers, topic, printed string) error {
	stored, err := positionsIn(printed)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(brokers, ",")...),
		kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		// Join if the record at a position was deleted.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	partitions, err := partitionsOf(client, topic)
	if err != nil {
		return err
	}
	readers, begins := map[int32]*Reader{}, map[int32]kgo.Offset{}
	for _, about := range partitions {
		partition := about.Partition
		readers[partition], begins[partition] = &Reader{}, kgo.NewOffset().AtStart()
		if at, isStored := stored[partition]; isStored {
			readers[partition] = &Reader{Position: at.Position}
			begins[partition] = kgo.NewOffset().At(at.nextRecord)
		}
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: begins})
	for {
		fetches := client.PollFetches(context.Background())
		if errs := fetches.Errors(); len(errs) > 0 {
			return errs[0].Err
		}
		for _, record := range fetches.Records() {
			if err := printAccepted(record, readers[record.Partition]); err != nil {
				return fmt.Errorf("partition %d, offset %d: %w", record.Partition, record.Offset, err)
			}
		}
	}
}

// printAccepted prints the new updates of a record and the position after them. Your program stores
// both in one step.
func printAccepted(record *kgo.Record, reader *Reader) error {
	frame, err := ParseFrame(record.Value)
	if errors.Is(err, ErrNoFrame) {
		return nil
	}
	if err != nil {
		return err
	}
	verdict, updates := reader.Fold(&frame)
	if verdict == "halt" {
		return errors.New("the chain does not match")
	}
	if strings.HasPrefix(verdict, "gap") {
		fmt.Fprintf(os.Stderr, "partition %d: %s\n", record.Partition, verdict)
	}
	if len(updates) == 0 {
		return nil
	}
	first := reader.NextUpdate - uint64(len(updates))
	for at, update := range updates {
		fmt.Printf("%d %d kind %d player %d\n",
			record.Partition, first+uint64(at), update.Kind(), update.PlayerID())
	}
	fmt.Println(positionLine(record.Partition, stored{reader.Position, record.Offset + 1}))
	return nil
}

const positionForm = "%d position %d %d %d %d %016x"

// stored is a position, and the offset of the next record.
type stored struct {
	Position
	nextRecord int64
}

func positionLine(partition int32, at stored) string {
	return fmt.Sprintf(positionForm,
		partition, at.nextRecord, at.Epoch, at.NextUpdate, at.NextOffset, at.Chain)
}

// partitionsOf asks which partitions a topic has.
func partitionsOf(client *kgo.Client, topic string) ([]kmsg.MetadataResponseTopicPartition, error) {
	request, asked := kmsg.NewPtrMetadataRequest(), kmsg.NewMetadataRequestTopic()
	asked.Topic = &topic
	request.Topics = append(request.Topics, asked)
	response, err := request.RequestWith(context.Background(), client)
	if err != nil {
		return nil, err
	}
	return response.Topics[0].Partitions, kerr.ErrorForCode(response.Topics[0].ErrorCode)
}

// positionsIn has the last position of each partition in a file that `read` has printed, and goes on
// printing. A line that was cut off, as by a kill, counts as not printed.
func positionsIn(printed string) (map[int32]stored, error) {
	positions := map[int32]stored{}
	if printed == "" {
		return positions, nil
	}
	text, err := os.ReadFile(printed)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		fmt.Println()
	}
	for _, line := range strings.Split(string(text), "\n") {
		var partition int32
		var at stored
		fmt.Sscanf(line, positionForm,
			&partition, &at.nextRecord, &at.Epoch, &at.NextUpdate, &at.NextOffset, &at.Chain)
		if line == positionLine(partition, at) {
			positions[partition] = at
		}
	}
	return positions, err
}

func write(brokers, topic string, partition int32) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(brokers, ",")...),
		// The partition is the zone: always name it, and never let a partitioner choose.
		// Acks from all replicas and idempotence are what this client does by itself.
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	seqs, player := Seqs{}, uint64(76561199000000001) // none of `huntd load`
	values := [][]byte{seqs.Event("join", player, map[string]any{"x": 1000, "y": 2000})}
	for step := 1; step < 5; step++ {
		where := map[string]any{"x": 1000 + 10*step, "y": 2000}
		values = append(values, seqs.Event("move", player, where))
	}
	for _, value := range values {
		record := &kgo.Record{Topic: topic, Partition: partition, Value: value}
		if err := client.ProduceSync(context.Background(), record).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

// verify: `start` or `join` begins a reader, `position` tells where it is; else a frame in hex.
func verify() {
	reader := &Reader{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		switch line := lines.Text(); line {
		case "start":
			reader = &Reader{}
		case "join":
			reader = Joining()
		case "position":
			at := reader.Position
			fmt.Printf("%d %d %d %016x %d\n", at.Epoch, at.NextUpdate, at.NextOffset, at.Chain, reader.Gaps)
		case "seqs":
			seqs := Seqs{}
			fmt.Println(seqs.Next(1, 5), seqs.Next(1, 5), seqs.Next(1, 4), seqs.Next(1, 9))
		default:
			record, _ := hex.DecodeString(line)
			frame, err := ParseFrame(record)
			if err != nil {
				if errors.Is(err, ErrNoFrame) {
					fmt.Println("ignores")
				} else {
					fmt.Println("stops")
				}
				continue
			}
			verdict, _ := reader.Fold(&frame)
			fmt.Println(verdict)
		}
	}
}

func main() {
	arguments := append(os.Args[1:], "", "", "", "")
	var err error
	switch arguments[0] {
	case "read":
		err = read(arguments[1], arguments[2], arguments[3])
	case "write":
		partition, _ := strconv.ParseInt(arguments[3], 10, 32)
		err = write(arguments[1], arguments[2], int32(partition))
	case "verify":
		verify()
	default:
		err = errors.New("read, write or verify")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
