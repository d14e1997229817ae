// The frames of the reference job: updates of one partition as JSON.

package main

import "strconv"

const (
	// Updates in one frame at most, as in huntd.
	updatesMax = 4096
	// Room for the fields that stand before the updates and are known last.
	headBytes = 256
)

// A frame of updates of one partition as JSON, the bytes that huntd writes too.
type frame struct {
	bytes       []byte
	count       uint64
	firstUpdate uint64
}

func newFrame() *frame {
	return &frame{bytes: make([]byte, headBytes, 64<<10)}
}

func (f *frame) isEmpty() bool { return f.count == 0 }

func (f *frame) isFull() bool { return f.count == updatesMax }

// Begins an update.
func (f *frame) begin(kind string, playerID uint64, tsUS int64) {
	if f.count > 0 {
		f.bytes = append(f.bytes, ',')
	}
	f.count++
	f.bytes = append(f.bytes, `{"kind":"`...)
	f.bytes = append(f.bytes, kind...)
	f.bytes = append(f.bytes, `","player_id":"`...)
	f.bytes = strconv.AppendUint(f.bytes, playerID, 10)
	f.bytes = append(f.bytes, `","ts_us":`...)
	f.bytes = strconv.AppendInt(f.bytes, tsUS, 10)
}

// A number of the update.
func (f *frame) field(name string, value int64) {
	f.bytes = append(f.bytes, `,"`...)
	f.bytes = append(f.bytes, name...)
	f.bytes = append(f.bytes, `":`...)
	f.bytes = strconv.AppendInt(f.bytes, value, 10)
}

// Ends an update.
func (f *frame) end() {
	f.bytes = append(f.bytes, '}')
}

// The frame for all input up to nextOffset; the next one follows it.
func (f *frame) seal(nextOffset int64) []byte {
	head := make([]byte, 0, headBytes)
	head = append(head, `{"version":2,"kind":"updates","epoch":1,"first_update":`...)
	head = strconv.AppendUint(head, f.firstUpdate, 10)
	head = append(head, `,"count":`...)
	head = strconv.AppendUint(head, f.count, 10)
	head = append(head, `,"next_offset":`...)
	head = strconv.AppendInt(head, nextOffset, 10)
	head = append(head, `,"ruleset":0,"chain":"0000000000000000","updates":[`...)
	sealed := append(f.bytes, `]}`...)
	start := headBytes - len(head)
	copy(sealed[start:], head)
	// The client owns the bytes until the broker has acknowledged them.
	f.bytes = make([]byte, headBytes, len(sealed)+len(sealed)/8)
	f.firstUpdate += f.count
	f.count = 0
	return sealed[start:]
}
