//! A WebSocket of `huntd serve`, read by another implementation of RFC 6455.

use std::process::Command;
use support::daemon::{Huntd, Topics};
use support::kafka;
use support::needs;
use support::serving::Serving;

/// Python with the library `websockets`.
const PROGRAM: &str = r#"
import asyncio, json, sys
import websockets

async def events(socket, until):
    found = []
    while not any(map(until, found)):
        found.extend(json.loads(await socket.recv()))
    return found

async def play(address):
    # The zone is being loaded at first.
    while True:
        socket = await websockets.connect(f"ws://{address}/v1/stream?zone=0&player=7")
        first = await events(socket, lambda event: event["event"] in ("at", "card"))
        if first[0]["event"] == "at":
            break
        await socket.close()
        await asyncio.sleep(0.05)
    join = {"type": "join", "player_id": 7, "x": 2000, "y": 70}
    await socket.send(json.dumps({"request": 1, "zone": 0, "wait_ms": 10000, "post": join}))
    answered = lambda request: lambda event: event.get("request") == request
    found = await events(socket, answered(1))
    answer = next(filter(answered(1), found))
    assert (answer["request"], answer["status"]) == (1, 200), answer
    assert answer["data"]["outcome"] == "applied", answer
    assert answer["data"]["updates"][0]["kind"] == "joined", answer
    await asyncio.wait_for(await socket.ping(b"here"), 60)
    # In three frames, the last of them empty.
    turn = {"type": "rotate", "player_id": 7, "heading": 900}
    text = json.dumps({"request": 2, "wait_ms": 10000, "post": turn})
    await socket.send([text[:9], text[9:], ""])
    found += await events(socket, answered(2))
    answer = next(filter(answered(2), found))
    assert answer["data"]["outcome"] == "applied", answer
    # The stream has each update once, before the answer or after it.
    turned = lambda event: event["event"] == "update" and event["data"].get("heading") == 900
    if not any(map(turned, found)):
        found += await events(socket, turned)
    numbers = [int(event["id"].split(":")[1]) for event in found if event["event"] == "update"]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), numbers
    await socket.send(b"binary")
    try:
        await events(socket, lambda _: False)
    except websockets.ConnectionClosed as closed:
        assert closed.rcvd.code == 1003, closed
    resumed = f"ws://{address}/v1/stream?zone=0&last_event_id=0:{numbers[0]}"
    async with websockets.connect(resumed) as socket:
        again = await events(socket, turned)
    ids = [event["id"] for event in again if event["event"] == "update"]
    assert ids[0] == f"0:{numbers[0] + 1}", ids
    print("played")

asyncio.run(asyncio.wait_for(play(sys.argv[1]), 240))
"#;

#[test]
fn another_implementation_follows_a_zone_and_plays_over_a_websocket() {
    let imports = |python: &&str| {
        let mut command = Command::new(python);
        command.args(["-c", "import websockets"]).output().is_ok_and(|of| of.status.success())
    };
    let python = ["python3", "/usr/bin/python3"].into_iter().find(imports);
    if !needs::has("python3 with websockets", python.is_some()) {
        return;
    }
    let topics = Topics::create(kafka::shared(), "sockets", 1);
    let mut huntd = Huntd::start(kafka::shared(), &topics, &[("input", "tick_every_ms = 100")]);
    huntd.wait_for_address();
    let serving = Serving::start(&huntd);
    serving.body_at(&[1], "/v1/zones");
    let mut play = Command::new(python.expect("there is one"));
    let played = play.args(["-c", PROGRAM, serving.address()]).output().expect("python runs");
    let error = String::from_utf8_lossy(&played.stderr);
    assert_eq!(String::from_utf8_lossy(&played.stdout), "played\n", "{error}");
}
