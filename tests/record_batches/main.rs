//! The consumer's protocol code over byte slices: whatever a broker sends, it reads the same
//! records as others do, or says what is wrong.

mod builder;

mod wire;

mod batches;

mod codecs;

mod golden;

mod aborted;

mod fetch;

mod messages;

mod metadata;

mod damage;

mod broker;

mod librdkafka;
