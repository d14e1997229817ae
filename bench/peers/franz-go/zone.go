// The zones of the reference job: what it knows of players, and what events make of it.

package main

import (
	"unsafe"

	"github.com/bytedance/sonic"
)

// Health of an unhurt player.
const health = 100

// Sides of a tile are 1,024 cm, and 256 tiles are the side of a zone.
func tile(x, y int64) int64 { return (y>>10)*256 + (x >> 10) }

// What an event may hold. Other keys are passed over.
type event struct {
	Type       string `json:"type"`
	PlayerID   uint64 `json:"player_id"`
	Seq        uint64 `json:"seq"`
	TsUS       int64  `json:"ts_us"`
	X          int64  `json:"x"`
	Y          int64  `json:"y"`
	Heading    int64  `json:"heading"`
	Weapon     int64  `json:"weapon"`
	Hunt       int64  `json:"hunt"`
	Treasures  int64  `json:"treasures"`
	DurationMS int64  `json:"duration_ms"`
}

// What is known of a player.
type player struct {
	seq                        uint64
	x, y, tile, heading        int64
	moves, turns, shots, loots int64
}

// The players of one partition.
type zone struct {
	players map[uint64]*player
	hunts   uint64
	// Events that were applied.
	events uint64
	// Records that are no events.
	rejects uint64
	// Strings point into the record, which outlives the event.
	parser sonic.API
	event  event
}

func newZone() *zone {
	parser := sonic.Config{CopyString: false, NoValidateJSONSkip: false}.Froze()
	return &zone{players: map[uint64]*player{}, parser: parser}
}

// Applies one record and puts its update into the frame.
func (z *zone) apply(value []byte, frame *frame) {
	event := &z.event
	*event = zeroEvent
	// As a string the bytes are not copied first; nobody changes them.
	text := unsafe.String(unsafe.SliceData(value), len(value))
	if z.parser.UnmarshalFromString(text, event) != nil {
		z.rejects++
		return
	}
	if event.Type == "hunt_start" {
		z.events++
		z.hunts++
		frame.begin("hunt_started", 0, event.TsUS)
		frame.field("treasures", event.Treasures)
		frame.field("hunt", event.Hunt)
		frame.field("duration_ms", event.DurationMS)
		frame.end()
		return
	}
	known := z.players[event.PlayerID]
	if known == nil {
		known = &player{}
		z.players[event.PlayerID] = known
	}
	known.seq = max(known.seq, event.Seq)
	switch event.Type {
	case "join":
		known.x, known.y = event.X, event.Y
		known.tile = tile(event.X, event.Y)
		frame.begin("joined", event.PlayerID, event.TsUS)
		frame.field("health", health)
		frame.field("x", event.X)
		frame.field("y", event.Y)
	case "move":
		known.moves++
		known.x, known.y = event.X, event.Y
		known.tile = tile(event.X, event.Y)
		frame.begin("moved", event.PlayerID, event.TsUS)
		frame.field("tile", known.tile)
		frame.field("x", event.X)
		frame.field("y", event.Y)
	case "rotate":
		known.turns++
		known.heading = event.Heading
		frame.begin("rotated", event.PlayerID, event.TsUS)
		frame.field("heading", event.Heading)
	case "shoot":
		known.shots++
		frame.begin("shot", event.PlayerID, event.TsUS)
		frame.field("weapon", event.Weapon)
		frame.field("heading", known.heading)
		frame.field("distance_cm", 0)
	case "loot":
		known.loots++
		frame.begin("item_gained", event.PlayerID, event.TsUS)
		frame.field("item", 1)
		frame.field("gained", 1)
		frame.field("held", known.loots)
	default:
		z.rejects++
		return
	}
	z.events++
	frame.end()
}

var zeroEvent event

// A hash of all that is known, whatever the order of the players.
func (z *zone) digest() uint64 {
	digest := z.hunts
	for id, p := range z.players {
		hash := id
		counts := [...]uint64{
			p.seq, uint64(p.x), uint64(p.y), uint64(p.tile), uint64(p.heading),
			uint64(p.moves), uint64(p.turns), uint64(p.shots), uint64(p.loots),
		}
		for _, value := range counts {
			hash = (hash ^ value) * 0x100_0000_01b3
			hash ^= hash >> 32
		}
		digest += hash
	}
	return digest
}
