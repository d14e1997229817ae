//! The adapters' decisions, tested with invented recordings.

use super::{MatchEvents, MatchFormat, MatchOptions, heading, player_number};
use huntd::kit::bots::BOT_ID_FIRST;
use std::fmt::Write;

/// The events of a recording, one per line: partition, player, seq, and the event without its time.
fn play(format: MatchFormat, zones: u16, repeat: u32, lines: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("match.jsonl");
    std::fs::write(&file, lines.join("\n")).expect("the recording can be written");
    let options = MatchOptions { file, format, zones, repeat, base_ms: 1_000_000 };
    let mut events = MatchEvents::open(options).expect("the recording is there");
    let mut text = String::new();
    while let Some(record) = events.next_record().expect("the recording is fine") {
        let value = record.value.expect("an event has a value");
        let value: serde_json::Value = serde_json::from_slice(value).expect("an event is JSON");
        assert_eq!(value["ts_us"], record.time_ms * 1000);
        let Some(player) = value["player_id"].as_u64() else {
            continue;
        };
        let _ = write!(
            text,
            "{} {} {} {}",
            record.partition,
            player - BOT_ID_FIRST,
            value["seq"],
            value["type"].as_str().expect("an event has a type")
        );
        for field in ["x", "y", "heading", "weapon", "to_zone"] {
            if let Some(number) = value[field].as_i64() {
                let _ = write!(text, " {field}={number}");
            }
        }
        text.push('\n');
    }
    text
}

#[test]
fn a_player_of_prbf2_joins_when_it_spawns_and_leaves_when_it_dies() {
    let lines = [
        concat!(
            r#"{"ts_ms":0,"type":"player_update","player":"p001","alive":false,"pos":[-1,"#,
            r#"-2,-3],"yaw":0,"kit":""}"#
        ),
        r#"{"ts_ms":100,"type":"player_update","player":"p001","pos":[10,5,10]}"#,
        concat!(
            r#"{"ts_ms":200,"type":"player_update","player":"p001","alive":true,"pos":[10,"#,
            r#"5,20],"yaw":-90,"kit":"medic"}"#
        ),
        r#"{"ts_ms":300,"type":"player_update","player":"p001","pos":[11,5,20],"yaw":450}"#,
        r#"{"ts_ms":400,"type":"player_update","player":"p001","ping":7}"#,
        r#"{"ts_ms":500,"type":"player_update","player":"p001","alive":false,"yaw":3}"#,
        r#"{"ts_ms":600,"type":"player_update","player":"p001","pos":[12,5000,20]}"#,
        r#"{"ts_ms":700,"type":"player_update","player":"p001","alive":true,"pos":[2000,5,2000]}"#,
    ];
    let expected = "\
0 1 1 join x=205800 y=206800
0 1 2 rotate heading=27000
0 1 3 move x=205900 y=206800
0 1 4 rotate heading=9000
0 1 5 leave
0 1 6 join x=404800 y=404800
0 1 7 leave
";
    assert_eq!(play(MatchFormat::Prbf2, 1, 1, &lines), expected);
}

#[test]
fn a_kit_of_prbf2_is_one_loot_whether_announced_or_changed() {
    let lines = [
        r#"{"ts_ms":0,"type":"kit_allocated","player":"p002","item":"medic"}"#,
        concat!(
            r#"{"ts_ms":100,"type":"player_update","player":"p002","alive":true,"pos":[0,"#,
            r#"5,0],"kit":"a"}"#
        ),
        r#"{"ts_ms":200,"type":"kit_allocated","player":"p002","item":"sniper"}"#,
        r#"{"ts_ms":300,"type":"player_update","player":"p002","kit":"b"}"#,
        r#"{"ts_ms":400,"type":"player_update","player":"p002","kit":"c"}"#,
    ];
    let expected = "\
0 2 1 join x=204800 y=204800
0 2 2 loot
0 2 3 loot
0 2 4 leave
";
    assert_eq!(play(MatchFormat::Prbf2, 1, 1, &lines), expected);
}

#[test]
fn a_kill_of_prbf2_is_a_shot_at_the_victim_as_long_as_both_are_there() {
    let lines = [
        r#"{"ts_ms":0,"type":"player_update","player":"p001","alive":true,"pos":[0,5,0]}"#,
        r#"{"ts_ms":0,"type":"player_update","player":"p002","alive":true,"pos":[0,5,30]}"#,
        r#"{"ts_ms":100,"type":"kill","player":"p001","victim":"p002","weapon":"rifle"}"#,
        r#"{"ts_ms":100,"type":"player_remove","player":"p002"}"#,
        r#"{"ts_ms":200,"type":"kill","player":"p001","victim":"p002","weapon":"rifle"}"#,
    ];
    let text = play(MatchFormat::Prbf2, 1, 1, &lines);
    let kinds: Vec<&str> = text.lines().collect();
    assert!(kinds[2].starts_with("0 1 2 shoot heading=9000 weapon="), "{text}");
    assert_eq!(kinds[3], "0 2 2 leave");
    assert!(kinds[4].starts_with("0 1 3 shoot weapon="), "{text}");
}

#[test]
fn a_jump_is_a_leave_and_a_join_and_a_handoff_names_the_zone() {
    let lines = [
        r#"{"ts_ms":0,"type":"player_update","player":"p003","alive":true,"pos":[-10,5,-1000]}"#,
        r#"{"ts_ms":300,"type":"player_update","player":"p003","pos":[10,5,-1000]}"#,
        r#"{"ts_ms":600,"type":"player_update","player":"p003","pos":[10,5,1000]}"#,
        r#"{"ts_ms":900,"type":"player_update","player":"p003","pos":[10,5,2500]}"#,
        r#"{"ts_ms":950,"type":"player_remove","player":"p003"}"#,
    ];
    let expected = "\
0 3 1 join x=203800 y=104800
0 3 2 leave to_zone=1
1 3 3 join x=1000 y=104800
1 3 4 leave
3 3 5 join x=1000 y=100000
3 3 6 leave
";
    assert_eq!(play(MatchFormat::Prbf2, 4, 1, &lines), expected);
}

#[test]
fn a_player_of_csgo_is_placed_by_its_first_shot_of_a_round() {
    let lines = [
        r#"{"ts_ms":0,"type":"world","event":"Round_Start"}"#,
        r#"{"ts_ms":0,"type":"purchase","player":"bot06","item":"ak47"}"#,
        concat!(
            r#"{"ts_ms":1000,"type":"attack","player":"bot06","pos":[0,0,9],"#,
            r#""target":"p04","target_pos":[0,100,9],"item":"ak47"}"#
        ),
        r#"{"ts_ms":2000,"type":"purchase","player":"p04","item":"ak47"}"#,
        r#"{"ts_ms":3000,"type":"world","event":"Round_Start"}"#,
        r#"{"ts_ms":3000,"type":"throw","player":"p04","item":"decoy","pos":[0,110,9]}"#,
    ];
    let text = play(MatchFormat::Csgo, 1, 1, &lines);
    let kinds: Vec<&str> = text.lines().collect();
    assert_eq!(kinds.len(), 9, "{text}");
    assert_eq!(kinds[0], "0 100006 1 join x=7804 y=7804");
    assert_eq!(kinds[1], "0 4 1 join x=7804 y=7995");
    assert!(kinds[2].starts_with("0 100006 2 shoot heading=9000 weapon="), "{text}");
    assert_eq!(kinds[3..6], ["0 4 2 loot", "0 4 3 leave", "0 4 4 join x=7804 y=8014"]);
    assert!(kinds[6].starts_with("0 4 5 shoot weapon="), "{text}");
    assert_eq!(kinds[7..], ["0 4 6 leave", "0 100006 3 leave"]);
}

#[test]
fn a_car_of_rocket_league_leaves_when_it_is_gone_or_demolished() {
    let lines = [
        concat!(
            r#"{"ts_ms":0,"type":"car_state","player":"p1","pos":[0.4,0.6,17.0],"#,
            r#""rot":[45.04,0.5,0.0]}"#
        ),
        concat!(
            r#"{"ts_ms":0,"type":"car_state","player":"p2","pos":[-100.0,0.6,17.0],"#,
            r#""rot":[0.0,0.5,0.0]}"#
        ),
        r#"{"ts_ms":33,"type":"demolish","player":"p1","victim":"p2"}"#,
        r#"{"ts_ms":40,"type":"boost_pickup","player":"p1","pad":"x"}"#,
        r#"{"ts_ms":66,"type":"car_gone","player":"p1"}"#,
        r#"{"ts_ms":66,"type":"boost_pickup","player":"p1","pad":"x"}"#,
    ];
    let text = play(MatchFormat::RocketLeague, 1, 1, &lines);
    let kinds: Vec<&str> = text.lines().collect();
    assert_eq!(
        kinds[..4],
        [
            "0 1 1 join x=8192 y=8193",
            "0 1 2 rotate heading=4504",
            "0 2 1 join x=8092 y=8193",
            "0 2 2 rotate heading=0"
        ]
    );
    assert!(kinds[4].starts_with("0 1 3 shoot heading=18000 weapon="), "{text}");
    assert_eq!(kinds[5..], ["0 2 3 leave", "0 1 4 loot", "0 1 5 leave"]);
}

/// A record of PUBG's telemetry, at this second of a match.
fn telemetry(second: u32, kind: &str, fields: &str) -> String {
    format!(r#"{{{fields},"_D":"2018-04-27T09:00:{second:02}.5Z","_T":"{kind}"}}"#)
}

fn character(account: &str, x: u32, y: u32, z: u32) -> String {
    format!(r#"{{"accountId":"{account}","health":1,"location":{{"x":{x},"y":{y},"z":{z}}}}}"#)
}

#[test]
fn a_player_of_pubg_is_there_from_below_the_plane_until_it_is_killed() {
    let game = r#""common":{"isGame":1.5}"#;
    let [plane, ground] = [150_000, 500].map(|z| character("account.a", 408_000, 408_100, z));
    let [other, nowhere] = [408_300, 0].map(|at| character("account.b", at, at, 20));
    let lines = [
        telemetry(0, "LogPlayerPosition", &format!(r#""character":{ground}"#)),
        telemetry(1, "LogPlayerPosition", &format!(r#""character":{plane},{game}"#)),
        telemetry(2, "LogPlayerPosition", &format!(r#""character":{ground},{game}"#)),
        telemetry(3, "LogItemPickup", &format!(r#""character":{other},{game}"#)),
        telemetry(3, "LogItemPickupFromLootBox", &format!(r#""character":{other},{game}"#)),
        telemetry(
            4,
            "LogPlayerAttack",
            &format!(r#""attacker":{nowhere},"weapon":{{"itemId":"Item_Weapon_AK47_C"}},{game}"#),
        ),
        telemetry(
            4,
            "LogPlayerTakeDamage",
            &format!(r#""attacker":{other},"victim":{ground},{game}"#),
        ),
        telemetry(5, "LogPlayerKill", &format!(r#""killer":{other},"victim":{ground},{game}"#)),
        telemetry(6, "LogVehicleLeave", &format!(r#""character":{ground},{game}"#)),
        telemetry(6, "LogPlayerPosition", &format!(r#""character":{ground},{game}"#)),
        telemetry(7, "LogPlayerLogout", r#""accountId":"account.b""#),
        r#"{"_D":"2018-04-28T09:00:00Z","_T":"LogMatchEnd"}"#.to_owned(),
    ];
    let all = |text: &str| {
        let kinds: Vec<&str> = text.lines().collect();
        let begin = [
            "0 1 1 join x=408000 y=408100",
            "0 2 1 join x=408300 y=408300",
            "0 2 2 loot",
            "0 2 3 move x=408300 y=408300",
        ];
        assert_eq!(kinds[..4], begin);
        assert!(kinds[4].starts_with("0 2 4 shoot weapon="), "{text}");
        let end = [
            // The hit: both players are seen, and the attacker has turned to the victim.
            "0 2 5 move x=408300 y=408300",
            "0 1 2 move x=408000 y=408100",
            "0 2 6 rotate heading=21369",
            // The kill.
            "0 2 7 move x=408300 y=408300",
            "0 1 3 move x=408000 y=408100",
            "0 1 4 leave",
            "0 1 5 join x=408000 y=408100",
            "0 2 8 leave",
            "0 1 6 leave",
        ];
        assert_eq!(kinds[5..], end);
    };
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    all(&play(MatchFormat::Pubg, 1, 1, &lines));
    let array = format!("\u{feff}\n[\n{} ]\n", lines.join(" ,\n"));
    all(&play(MatchFormat::Pubg, 1, 1, &[&array]));
}

#[test]
fn a_position_far_from_every_map_is_off_the_map() {
    for x in ["-1e300", "1e300", "-1", "816000"] {
        let place = format!(r#"{{"accountId":"a","location":{{"x":{x},"y":9,"z":9}}}}"#);
        let game = r#""common":{"isGame":1}"#;
        let seen = telemetry(1, "LogPlayerPosition", &format!(r#""character":{place},{game}"#));
        assert_eq!(play(MatchFormat::Pubg, 1, 1, &[&seen]), "", "{x}");
    }
}

/// The error that ends the reading of a recording.
fn trouble(format: MatchFormat, text: &str) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("match.jsonl");
    std::fs::write(&file, text).expect("it can be written");
    let options = MatchOptions { file, format, zones: 1, repeat: 1, base_ms: 1_000_000 };
    let mut events = MatchEvents::open(options).expect("the recording is there");
    loop {
        match events.next_record() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("something is wrong with it"),
            Err(error) => break error.to_string(),
        }
    }
}

#[test]
fn an_array_that_is_cut_short_or_holds_no_objects_is_damaged() {
    let first = telemetry(0, "LogMatchStart", r#""mapName":"Erangel_Main""#);
    for rest in ["", ",", r#",{"_D":"2018"#, ",[]]", ",7]", r#","{"]"#] {
        let error = trouble(MatchFormat::Pubg, &format!("[{first}{rest}"));
        assert!(error.contains("is cut short or damaged"), "{rest}: {error}");
    }
    let error = trouble(MatchFormat::Pubg, &format!(r#"[{first},{{"a":1}}]"#));
    assert!(error.contains("record 2 of "), "{error}");
}

#[test]
fn a_repeated_match_has_other_players_at_later_times() {
    let lines = [r#"{"ts_ms":0,"type":"car_state","player":"p1","pos":[0,0,0]}"#];
    let text = play(MatchFormat::RocketLeague, 1, 2, &lines);
    let expected = "\
0 1 1 join x=8192 y=8192
0 1 2 leave
0 1000001 1 join x=8192 y=8192
0 1000001 2 leave
";
    assert_eq!(text, expected);
}

#[test]
fn a_line_of_another_game_is_an_error_that_names_it() {
    let error = trouble(MatchFormat::Csgo, "{\"ts_ms\":0,\"type\":\"x\"}\n[]\n");
    assert!(error.contains("record 2 of "), "{error}");
}

#[test]
fn people_and_bots_have_numbers_of_their_own() {
    assert_eq!(player_number("p036"), Some(36));
    assert_eq!(player_number("bot13"), Some(100_013));
    assert_eq!(player_number("world"), None);
    assert_eq!(player_number("p999999"), None);
}

#[test]
fn degrees_of_any_size_are_headings() {
    for (degrees, expected) in [(0.0, 0), (-90.0, 27_000), (450.0, 9_000), (359.999, 0)] {
        assert_eq!(heading(degrees), expected, "{degrees}");
    }
}
