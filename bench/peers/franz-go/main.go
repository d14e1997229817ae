// The reference job on franz-go: a goroutine a partition that parses and applies; the client's own
// goroutines fetch and publish.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Batches of records that may wait for a partition's goroutine.
const batchesMax = 4

type batch struct {
	records []*kgo.Record
}

// What it takes to trust a broker whose certificate an authority has signed.
func trust(caFile string) *tls.Config {
	pem, err := os.ReadFile(caFile)
	check(err)
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		panic("no certificate in " + caFile)
	}
	return &tls.Config{RootCAs: authorities}
}

func main() {
	if len(os.Args) != 5 && len(os.Args) != 6 {
		fmt.Fprintln(os.Stderr, "BROKERS INPUT OUTPUT PARTITIONS [CA_FILE]")
		os.Exit(2)
	}
	brokers, input, output := os.Args[1], os.Args[2], os.Args[3]
	partitions, err := strconv.Atoi(os.Args[4])
	check(err)
	// A fourth of the default number of collections, for some hundred MiB more.
	debug.SetGCPercent(400)

	offsets := map[int32]kgo.Offset{}
	for partition := range int32(partitions) {
		offsets[partition] = kgo.NewOffset().AtStart()
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(brokers, ",")...),
		// Assigned by hand: no group has to be joined.
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{input: offsets}),
		// Answers at once when there is anything, as huntd asks for.
		kgo.FetchMinBytes(1),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.FetchMaxPartitionBytes(1 << 20),
		kgo.FetchMaxBytes(8 << 20),
		kgo.DisableFetchCRCValidation(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// Frames are batches already: do not wait for more. They travel as LZ4, as huntd's do.
		kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.Lz4Compression()),
		kgo.ProducerBatchMaxBytes(1 << 20),
		kgo.MaxBufferedRecords(512),
	}
	if len(os.Args) == 6 {
		options = append(options, kgo.DialTLSConfig(trust(os.Args[5])))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	publish := func(partition int32, frame []byte) {
		record := &kgo.Record{Topic: output, Partition: partition, Value: frame}
		client.Produce(context.Background(), record, func(_ *kgo.Record, err error) { check(err) })
	}

	zones := make([]*zone, partitions)
	inboxes := make([]chan batch, partitions)
	var playing sync.WaitGroup
	for partition := range partitions {
		zones[partition] = newZone()
		inboxes[partition] = make(chan batch, batchesMax)
		playing.Add(1)
		go func() {
			defer playing.Done()
			play(int32(partition), zones[partition], inboxes[partition], publish)
		}()
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		// The process that started this one closes its standard input to end it.
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			break
		}
		fetches.EachError(func(_ string, _ int32, err error) { check(err) })
		fetches.EachPartition(func(fetched kgo.FetchTopicPartition) {
			if len(fetched.Records) > 0 {
				inboxes[fetched.Partition] <- batch{fetched.Records}
			}
		})
	}
	for _, inbox := range inboxes {
		close(inbox)
	}
	playing.Wait()
	check(client.Flush(context.Background()))
	report(zones)
}

// Applies the batches of one partition; sends a frame when it is full or no more is loaded.
func play(partition int32, zone *zone, inbox <-chan batch, publish func(int32, []byte)) {
	frame := newFrame()
	for batch := range inbox {
		var nextOffset int64
		for _, record := range batch.records {
			nextOffset = record.Offset + 1
			zone.apply(record.Value, frame)
			if frame.isFull() {
				publish(partition, frame.seal(nextOffset))
			}
		}
		if len(inbox) == 0 && !frame.isEmpty() {
			publish(partition, frame.seal(nextOffset))
		}
	}
}

func report(zones []*zone) {
	var events, rejects, digest uint64
	for _, zone := range zones {
		events += zone.events
		rejects += zone.rejects
		digest += zone.digest()
	}
	fmt.Printf("events=%d rejects=%d digest=%016x\n", events, rejects, digest)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
