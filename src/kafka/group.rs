//! Membership in the consumer group: which partitions this instance owns. The only use of
//! librdkafka's group consumer.
//!
//! librdkafka joins, heartbeats and commits, and never fetches: every assignment is answered with
//! an empty list, so it has nothing to fetch, while the true list goes to the data plane. A
//! revocation is answered at once: the output says who owns a shard, and until another instance
//! has fenced it, nobody else plays it.

use crate::kafka::assignment::Assignment;
use crate::kafka::client::{ClientOptions, TokenSource, client_config, give_first_token};
use crate::kafka::member_id::member_id;
use crate::kafka::membership::{MembershipError, MembershipEvent};
use crate::kafka::right::Right;
use crate::kafka::{BROKER_ANSWER_MS_MAX, METADATA_MS_MAX};
use rdkafka::ClientContext;
use rdkafka::client::OAuthToken;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::statistics::Statistics;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lower limit of a group session that brokers accept by default, in milliseconds.
pub(crate) const SESSION_TIMEOUT_MS_MIN: u32 = 6_000;

/// Upper limit; see [`SESSION_TIMEOUT_MS_MIN`].
pub(crate) const SESSION_TIMEOUT_MS_MAX: u32 = 1_800_000;

/// Interval of librdkafka's statistics.
const STATISTICS_MS: u32 = 1_000;

/// Time between two questions whether a commit has arrived.
const COMMIT_CHECK: Duration = Duration::from_millis(10);

/// Time that the coordinator has to say what is committed, where no group assigns the partitions:
/// nothing has to wait for it.
const COMMITTED_WAIT_MAX: Duration = Duration::from_millis(500);

/// Validated options of a group member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// How to reach the brokers, and the group that assigns the partitions.
    pub client: ClientOptions,
    /// The topic whose partitions are assigned.
    pub input_topic: String,
    /// Static membership (KIP-345): a quick restart under the same name moves no partitions.
    pub instance_id: Option<String>,
    /// The partitions of all instances, as the operator lists them; `None`: the group assigns them.
    pub assignment: Option<Assignment>,
    /// How the group is coordinated.
    pub protocol: GroupProtocol,
    /// Milliseconds without a heartbeat after which the group reassigns the partitions.
    pub session_timeout_ms: u32,
}

impl GroupOptions {
    /// Returns the partitions that the operator lists for this instance, or `None` if the group
    /// assigns them.
    pub(crate) fn listed(&self) -> Result<Option<&[i32]>, MembershipError> {
        let Some(assignment) = &self.assignment else { return Ok(None) };
        let ours = self.instance_id.as_ref().ok_or(MembershipError::Unnamed)?;
        let zones = assignment.zones_of(ours);
        zones.map(Some).ok_or_else(|| MembershipError::Unlisted(ours.clone()))
    }

    /// Returns an error if the operator lists a zone that an input topic with `partitions`
    /// partitions does not have.
    pub(crate) fn check_zones(&self, partitions: i32) -> Result<(), MembershipError> {
        let highest = self.assignment.as_ref().and_then(Assignment::highest_zone);
        match highest.filter(|zone| *zone >= partitions) {
            None => Ok(()),
            Some(zone) => {
                let topic = self.input_topic.clone();
                Err(MembershipError::ZoneMissing { zone, topic, partitions })
            }
        }
    }
}

/// How the group is coordinated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupProtocol {
    /// JoinGroup and SyncGroup, any broker; only partitions that move are revoked (KIP-429).
    Classic,
    /// JoinGroup before KIP-429: every rebalance revokes all partitions of all members.
    Eager,
    /// The broker assigns (KIP-848), Kafka 4.0 and later.
    Consumer,
}

/// A member of the group.
pub struct Membership {
    options: GroupOptions,
    consumer: Arc<BaseConsumer<Callbacks>>,
    rebalances: mpsc::Receiver<Rebalance>,
    asker: Option<Asker>,
    partitions: i32,
}

enum Rebalance {
    Assigned(Vec<i32>),
    Revoked(Vec<i32>),
    Lost(Vec<i32>),
    Answered { question: u64, is_member: bool, committed: Vec<(i32, i64)> },
    Trouble(MembershipError),
}

impl Membership {
    /// Checks that the input topic exists, then starts to join. The first
    /// [`MembershipEvent::Assigned`] means that the group has accepted this instance. If the
    /// operator assigns the partitions, it joins no group, and the event follows at once.
    pub fn join(options: &GroupOptions) -> Result<Membership, MembershipError> {
        let refused = |error: KafkaError| MembershipError::Refused(error.to_string());
        let (rebalance_sender, rebalances) = mpsc::channel();
        let callbacks = Callbacks {
            tokens: TokenSource::of(&options.client.security),
            rebalances: rebalance_sender,
            fetch_requests: AtomicU64::new(0),
            statistics: AtomicU64::new(0),
        };
        let answers = callbacks.rebalances.clone();
        let consumer: BaseConsumer<Callbacks> =
            config(options).create_with_context(callbacks).map_err(refused)?;
        give_first_token(&consumer, &options.client);
        let partitions = partitions(&consumer, options)?;
        options.check_zones(partitions)?;
        match options.listed()? {
            None => consumer.subscribe(&[&options.input_topic]).map_err(refused)?,
            Some(ours) => {
                answers.send(Rebalance::Assigned(ours.to_vec())).expect("the receiver is here");
            }
        }
        let consumer = Arc::new(consumer);
        let asker = Asker::start(options.clone(), consumer.clone(), answers)?;
        Ok(Membership {
            options: options.clone(),
            consumer,
            rebalances,
            asker: Some(asker),
            partitions,
        })
    }

    /// Checks that the input topic still exists.
    pub(crate) fn check_topic(&self) -> Result<(), MembershipError> {
        partitions(&self.consumer, &self.options).map(drop)
    }

    /// Partitions of the input topic.
    pub fn partitions(&self) -> i32 {
        self.partitions
    }

    /// Waits at most this long for something to happen. To be called repeatedly: the group takes a
    /// member that does not call for dead.
    pub fn poll(&mut self, wait_max: Duration) -> Option<MembershipEvent> {
        if let Some(event) = self.next_rebalance() {
            return Some(event);
        }
        match self.consumer.poll(wait_max) {
            Some(Err(error)) => Some(MembershipEvent::Error(self.trouble(&error))),
            Some(Ok(_)) => unreachable!("nothing is assigned to librdkafka, so it fetches nothing"),
            None => self.next_rebalance(),
        }
    }

    fn next_rebalance(&mut self) -> Option<MembershipEvent> {
        match self.rebalances.try_recv().ok()? {
            Rebalance::Assigned(partitions) => Some(MembershipEvent::Assigned(partitions)),
            Rebalance::Lost(partitions) => Some(MembershipEvent::Lost(partitions)),
            Rebalance::Answered { question, is_member, committed } => {
                Some(MembershipEvent::Answered { question, is_member, committed })
            }
            Rebalance::Trouble(trouble) => Some(MembershipEvent::Error(trouble)),
            Rebalance::Revoked(partitions) => Some(MembershipEvent::Revoked(partitions)),
        }
    }

    /// Returns whether other members would take this one's place now. Nobody takes the place of a
    /// static member (KIP-345) before its session times out, unless there are copies of its zones.
    pub(crate) fn may_be_succeeded(&self, has_copies: bool) -> bool {
        has_copies || !self.is_static()
    }

    /// Begins to leave the group, so that the others share our partitions out, and returns true. A
    /// static member stays.
    pub(crate) fn resign(&self) -> bool {
        if self.is_static() {
            return false;
        }
        self.consumer.unsubscribe();
        true
    }

    fn is_static(&self) -> bool {
        self.options.instance_id.is_some() || self.options.assignment.is_some()
    }

    /// The id that the group has given this instance, or the operator; `None` before it has joined.
    pub(crate) fn member_id(&self) -> Option<String> {
        match &self.options.assignment {
            None => member_id(self.consumer.client()),
            Some(_) => self.options.instance_id.clone(),
        }
    }

    /// Commits next offsets, for lag tools. Does not wait, and ignores a failure: the next commit
    /// replaces it.
    pub fn commit(&mut self, offsets: &[(i32, i64)]) {
        if offsets.is_empty() {
            return;
        }
        let list = self.offset_list(offsets);
        if let Err(error) = self.consumer.commit(&list, CommitMode::Async) {
            tracing::warn!(%error, "input offsets were not committed");
        }
    }

    /// Asks the group whether this instance is still a member of the current generation. A
    /// [`MembershipEvent::Answered`] with this number follows. A process that was suspended does
    /// not know that others have taken its place, but a broker refuses its commits. Committed
    /// offsets stay, because an owner beside this process knows better what is settled; where
    /// nothing is committed, these offsets are.
    pub fn ask(&mut self, question: u64, offsets: &[(i32, i64)]) {
        let question = CommitQuestion { number: question, offsets: self.offset_list(offsets) };
        let asker = self.asker.as_ref().expect("it is there until the membership is dropped");
        asker.questions.send(question).expect("the asker listens until it is dropped");
    }

    /// Commits, and waits at most this long until the broker has the offsets. Returns whether it
    /// has. It asks the broker for them, because librdkafka's own blocking commit has no time
    /// limit.
    pub fn commit_and_wait(&mut self, offsets: &[(i32, i64)], wait_max: Duration) -> bool {
        if offsets.is_empty() {
            return true;
        }
        self.commit(offsets);
        let wanted = self.offset_list(offsets);
        let end = Instant::now() + wait_max;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let committed = self.consumer.committed_offsets(wanted.clone(), left);
            if committed.is_ok_and(|committed| committed == wanted) {
                return true;
            }
            if left.is_zero() {
                return false;
            }
            std::thread::sleep(COMMIT_CHECK.min(left));
        }
    }

    fn offset_list(&self, offsets: &[(i32, i64)]) -> TopicPartitionList {
        let mut list = TopicPartitionList::with_capacity(offsets.len());
        for (partition, offset) in offsets {
            let topic = &self.options.input_topic;
            list.add_partition_offset(topic, *partition, Offset::Offset(*offset))
                .expect("offsets in the log are valid");
        }
        list
    }

    /// Number of Fetch requests that librdkafka has sent, from its latest statistics; `None` before
    /// the first. It must be 0; otherwise two clients fetch the same records.
    pub fn fetch_requests(&self) -> Option<u64> {
        let callbacks = self.consumer.context();
        let known = callbacks.statistics.load(Ordering::Acquire) > 0;
        known.then(|| callbacks.fetch_requests.load(Ordering::Relaxed))
    }

    fn trouble(&self, error: &KafkaError) -> MembershipError {
        trouble(&self.options, &self.consumer, error)
    }
}

/// Leaves the group, so that others take over at once. Static members (KIP-345) keep their
/// assignment until the group session times out.
impl Drop for Membership {
    fn drop(&mut self) {
        // Its end of the consumer has to go before the consumer can be closed.
        if let Some(Asker { questions, thread }) = self.asker.take() {
            drop(questions);
            thread.join().expect("a panic in any thread ends the process");
        }
    }
}

/// A thread for blocking questions: librdkafka's commits either wait without a limit or report
/// nothing.
struct Asker {
    questions: mpsc::Sender<CommitQuestion>,
    thread: JoinHandle<()>,
}

/// A commit that tests whether the group still accepts offsets from this member.
struct CommitQuestion {
    number: u64,
    offsets: TopicPartitionList,
}

impl Asker {
    fn start(
        options: GroupOptions,
        consumer: Arc<BaseConsumer<Callbacks>>,
        answers: mpsc::Sender<Rebalance>,
    ) -> Result<Asker, MembershipError> {
        let (questions, asked) = mpsc::channel();
        let ask = move || {
            for CommitQuestion { number: question, offsets } in asked {
                let committed = match &options.assignment {
                    None => commit_again(&consumer, &offsets),
                    Some(_) => read_committed(&consumer, &offsets, COMMITTED_WAIT_MAX),
                };
                // The receiver is gone only while the membership is being dropped.
                if let Some(trouble) = missing_right(&options, &consumer, &committed) {
                    answers.send(Rebalance::Trouble(trouble)).ok();
                }
                let is_member = options.assignment.is_some() || committed.is_ok();
                let committed = committed.unwrap_or_default();
                answers.send(Rebalance::Answered { question, is_member, committed }).ok();
            }
        };
        let thread = std::thread::Builder::new().name("asker".to_owned()).spawn(ask);
        let thread = thread.map_err(|error| MembershipError::Refused(error.to_string()))?;
        Ok(Asker { questions, thread })
    }
}

/// Commits what is committed already, which it returns, and these offsets where nothing is.
fn commit_again(
    consumer: &BaseConsumer<Callbacks>,
    offsets: &TopicPartitionList,
) -> KafkaResult<Vec<(i32, i64)>> {
    let known = read_committed(consumer, offsets, Duration::from_millis(METADATA_MS_MAX))?;
    let mut again = offsets.clone();
    for element in offsets.elements() {
        if let Some((partition, offset)) = known.iter().find(|it| it.0 == element.partition()) {
            again.set_partition_offset(element.topic(), *partition, Offset::Offset(*offset))?;
        }
    }
    consumer.commit(&again, CommitMode::Sync).map(|()| known)
}

/// Returns what is committed of these partitions.
fn read_committed(
    consumer: &BaseConsumer<Callbacks>,
    partitions: &TopicPartitionList,
    wait_max: Duration,
) -> KafkaResult<Vec<(i32, i64)>> {
    let committed = consumer.committed_offsets(partitions.clone(), wait_max)?;
    let mut known = Vec::new();
    for element in committed.elements() {
        element.error()?;
        if let Offset::Offset(offset) = element.offset() {
            known.push((element.partition(), offset));
        }
    }
    Ok(known)
}

fn partitions(
    consumer: &BaseConsumer<Callbacks>,
    options: &GroupOptions,
) -> Result<i32, MembershipError> {
    let topic = &options.input_topic;
    let metadata = consumer
        .fetch_metadata(Some(topic), Duration::from_millis(METADATA_MS_MAX))
        .map_err(|error| match trouble(options, consumer, &error) {
            MembershipError::Passing(_) => {
                MembershipError::Unreachable(options.client.brokers.join(","))
            }
            other => other,
        })?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let Some(found) = found else {
        return Err(MembershipError::TopicMissing(topic.clone()));
    };
    if let Some(error) = found.error() {
        let error = KafkaError::MetadataFetch(error.into());
        return Err(trouble(options, consumer, &error));
    }
    match found.partitions().len() {
        0 => Err(MembershipError::TopicMissing(topic.clone())),
        count => Ok(count as i32),
    }
}

/// Returns the missing right if a commit failed because of one. The right may be granted again, so
/// this does not end the membership.
fn missing_right<T>(
    options: &GroupOptions,
    consumer: &BaseConsumer<Callbacks>,
    committed: &KafkaResult<T>,
) -> Option<MembershipError> {
    let trouble = trouble(options, consumer, committed.as_ref().err()?);
    let is_missing = matches!(trouble, MembershipError::NotAuthorised { .. });
    is_missing.then(|| MembershipError::Passing(trouble.to_string()))
}

/// Translates an error of librdkafka.
fn trouble(
    options: &GroupOptions,
    consumer: &BaseConsumer<Callbacks>,
    error: &KafkaError,
) -> MembershipError {
    use RDKafkaErrorCode as Code;
    match error.rdkafka_error_code() {
        Some(Code::AllBrokersDown | Code::BrokerTransportFailure | Code::Resolve) => {
            MembershipError::Unreachable(options.client.brokers.join(","))
        }
        Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => {
            MembershipError::TopicMissing(options.input_topic.clone())
        }
        Some(Code::TopicAuthorizationFailed) => {
            let what = format!("the topic `{}`", options.input_topic);
            MembershipError::NotAuthorised { what, right: Right::Read }
        }
        // It may not commit offsets, and needs the group for nothing else.
        Some(Code::GroupAuthorizationFailed) if options.assignment.is_some() => {
            MembershipError::Passing(error.to_string())
        }
        Some(Code::GroupAuthorizationFailed) => {
            let what = format!("the group `{}`", options.client.group);
            MembershipError::NotAuthorised { what, right: Right::Read }
        }
        Some(Code::InconsistentGroupProtocol) => {
            MembershipError::Inconsistent(options.client.group.clone())
        }
        Some(Code::ClusterAuthorizationFailed) => {
            let what = "the cluster".to_owned();
            MembershipError::NotAuthorised { what, right: Right::DescribeCluster }
        }
        Some(Code::Authentication | Code::SaslAuthenticationFailed) => {
            MembershipError::NotAuthenticated(error.to_string())
        }
        Some(Code::SSL) => MembershipError::TlsFailed(error.to_string()),
        Some(Code::FencedInstanceId) => {
            MembershipError::InstanceTaken(options.instance_id.clone().unwrap_or_default())
        }
        Some(Code::UnreleasedInstanceId) => {
            MembershipError::InstanceHeld(options.instance_id.clone().unwrap_or_default())
        }
        _ => match consumer.client().fatal_error() {
            Some((Code::FencedInstanceId, _)) => {
                let id = options.instance_id.clone().unwrap_or_default();
                MembershipError::InstanceTaken(id)
            }
            Some((_, sentence)) => MembershipError::Refused(sentence),
            None => MembershipError::Passing(error.to_string()),
        },
    }
}

/// librdkafka's callbacks. They run inside [`Membership::poll`], on the control thread.
struct Callbacks {
    tokens: TokenSource,
    rebalances: mpsc::Sender<Rebalance>,
    fetch_requests: AtomicU64,
    statistics: AtomicU64,
}

impl ClientContext for Callbacks {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        self.tokens.token()
    }

    fn stats(&self, statistics: Statistics) {
        let requests = statistics.brokers.values().filter_map(|broker| broker.req.get("Fetch"));
        let fetches: u64 = requests.map(|count| u64::try_from(*count).unwrap_or(0)).sum();
        self.fetch_requests.store(fetches, Ordering::Relaxed);
        self.statistics.fetch_add(1, Ordering::Release);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "the consumer group client reports trouble");
    }
}

impl ConsumerContext for Callbacks {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        error: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        let partitions = list.elements().iter().map(|element| element.partition()).collect();
        let event = if error == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            answer_assignment(consumer);
            Rebalance::Assigned(partitions)
        } else {
            let is_lost = consumer.assignment_lost();
            answer_revocation(consumer);
            match is_lost {
                true => Rebalance::Lost(partitions),
                false => Rebalance::Revoked(partitions),
            }
        };
        // The receiver is gone only while the consumer itself is being dropped.
        self.rebalances.send(event).ok();
    }
}

/// Answers with an empty list, which is valid and keeps the member in the group. Without a list,
/// librdkafka would wait for another answer.
fn answer_assignment(consumer: &BaseConsumer<Callbacks>) {
    let nothing = TopicPartitionList::new();
    let answered = match consumer.rebalance_protocol() {
        RebalanceProtocol::Cooperative => consumer.incremental_assign(&nothing),
        _ => consumer.assign(&nothing),
    };
    log_answer(answered);
}

/// Answers without the real list, which librdkafka would refuse: it was never assigned to this
/// consumer.
fn answer_revocation(consumer: &BaseConsumer<Callbacks>) {
    let answered = match consumer.rebalance_protocol() {
        RebalanceProtocol::Cooperative => consumer.incremental_unassign(&TopicPartitionList::new()),
        _ => consumer.unassign(),
    };
    log_answer(answered);
}

fn log_answer(answered: KafkaResult<()>) {
    if let Err(error) = answered {
        tracing::warn!(%error, "the group did not accept the answer to its rebalance");
    }
}

/// librdkafka's upper limit of `socket.timeout.ms`.
const SOCKET_TIMEOUT_MS_MAX: u64 = 300_000;

fn config(options: &GroupOptions) -> ClientConfig {
    let mut config = client_config(&options.client);
    // A commit is answered after a join, which may wait for another member's session to end.
    let answer_ms_max = u64::from(options.session_timeout_ms) + BROKER_ANSWER_MS_MAX;
    config
        .set("group.id", &options.client.group)
        .set("socket.timeout.ms", answer_ms_max.min(SOCKET_TIMEOUT_MS_MAX).to_string())
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("statistics.interval.ms", STATISTICS_MS.to_string());
    if let (Some(id), None) = (&options.instance_id, &options.assignment) {
        config.set("group.instance.id", id);
    }
    match options.protocol {
        GroupProtocol::Classic => set_classic(&mut config, options, "cooperative-sticky"),
        GroupProtocol::Eager => set_classic(&mut config, options, "range"),
        // The broker sets the session timeout, heartbeats and assignor (KIP-848).
        GroupProtocol::Consumer => {
            config.set("group.protocol", "consumer");
        }
    }
    config
}

fn set_classic(config: &mut ClientConfig, options: &GroupOptions, strategy: &str) {
    let session_ms = options.session_timeout_ms;
    config
        .set("group.protocol", "classic")
        .set("partition.assignment.strategy", strategy)
        .set("session.timeout.ms", session_ms.to_string())
        .set("heartbeat.interval.ms", (session_ms / 3).clamp(1, 3_000).to_string())
        .set("max.poll.interval.ms", session_ms.max(300_000).to_string());
}
