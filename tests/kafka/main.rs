//! Tests against real Apache Kafka brokers. They live in one binary, so that one broker serves all
//! of them.

#![allow(clippy::print_stdout, reason = "tests say what they measure")]

mod advertised;
mod bad_input;
mod brokers;
mod browser_client;
mod campaign;
mod certificates;
mod clients;
mod container;
mod cross_origin;
mod cut_off;
mod damage;
mod data_plane;
mod delivery;
mod editions;
mod epoll;
mod exits;
mod explain;
mod failover;
mod group;
mod handoffs;
mod hot_thread;
mod lies;
mod matches;
mod monitoring;
mod moments;
mod moves;
mod operators;
mod outages;
mod page;
mod players;
mod quotas;
mod recreated;
mod reloads;
mod restarts;
mod restoring;
mod rights;
mod rivals;
mod rules;
mod security;
mod serving;
mod serving_clients;
mod serving_failures;
mod snapshots;
mod sockets;
mod stalls;
mod standby;
mod tapping;
mod threads;
mod tutorial;
mod verbs;
mod versions;
mod wire_faults;
mod zombies;
