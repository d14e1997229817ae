// The published stack in Go: fasthttp in front of Redis. Cards and polls are texts by player, the
// world's board is a sorted set, and an event is a write to it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"
)

// Connections to Redis: enough for requests that wait at the same time.
const poolSize = 64

const players = "/v1/players/"

func main() {
	store := redis.NewClient(&redis.Options{Addr: os.Args[1], PoolSize: poolSize})
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	go func() {
		// Who started it closes its input in the end.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	server := fasthttp.Server{Handler: func(request *fasthttp.RequestCtx) { answer(store, request) }}
	panic(server.Serve(listener))
}

func answer(store *redis.Client, request *fasthttp.RequestCtx) {
	var body []byte
	var err error
	path := string(request.Path())
	switch player, isPlayer := strings.CutPrefix(path, players); {
	case isPlayer:
		body, err = text(store, player)
	case path == "/v1/boards/world":
		body, err = board(store, request.QueryArgs())
	case path == "/v1/events" && request.IsPost():
		body, err = event(store, request.PostBody())
	default:
		err = redis.Nil
	}
	switch err {
	case nil:
		request.SetContentType("application/json")
		request.SetBody(body)
	case redis.Nil:
		request.SetStatusCode(fasthttp.StatusNotFound)
	default:
		request.Error(err.Error(), fasthttp.StatusInternalServerError)
	}
}

func text(store *redis.Client, player string) ([]byte, error) {
	key := "card:" + player
	if id, isPoll := strings.CutSuffix(player, "/poll"); isPoll {
		key = "poll:" + id
	}
	return store.Get(context.Background(), key).Bytes()
}

type place struct {
	Rank     int64  `json:"rank"`
	PlayerID string `json:"player_id"`
	Score    int64  `json:"score"`
}

func board(store *redis.Client, query *fasthttp.Args) ([]byte, error) {
	from, count := int64(query.GetUintOrZero("from")), int64(query.GetUintOrZero("count"))
	last := from + count - 2
	found, err := store.ZRevRangeWithScores(context.Background(), "world", from-1, last).Result()
	if err != nil {
		return nil, err
	}
	places := make([]place, 0, len(found))
	for at, entry := range found {
		id, _ := entry.Member.(string)
		places = append(places, place{from + int64(at), id, int64(entry.Score)})
	}
	return json.Marshal(map[string]any{"places": places})
}

func event(store *redis.Client, body []byte) ([]byte, error) {
	var event struct {
		PlayerID string `json:"player_id"`
	}
	if err := json.Unmarshal(body, &event); err != nil {
		return nil, err
	}
	score, err := store.ZIncrBy(context.Background(), "world", 1, event.PlayerID).Result()
	if err != nil {
		return nil, err
	}
	return []byte(`{"score":` + strconv.FormatInt(int64(score), 10) + `}`), nil
}
