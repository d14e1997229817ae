//! The other verbs: demo, load, replay, tap, topics.
