//! Kafka records in: broker connections, the wire protocol, group membership.
