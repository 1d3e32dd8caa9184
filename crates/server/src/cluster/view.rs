//! The cluster as operators see it.

use barid_core::time::{MonoTime, WallTime};
use barid_engine::cluster::{LinkCounts, ReplicaCounts};
use barid_peers::{Event, State};
use serde::Serialize;
use utoipa::ToSchema;

use super::Clustering;

/// The cluster, as this broker sees it.
#[derive(Clone, Debug)]
pub struct View {
    /// The name of the cluster.
    pub cluster: String,
    /// The name of this broker.
    pub broker: String,
    /// The address at which the others reach it.
    pub address: String,
    /// The incarnation of this broker.
    pub incarnation: u64,
    /// Whether links between brokers use TLS.
    pub encrypted: bool,
    /// When the certificate of this broker for links expires. `None`: there is none, or that cannot be read.
    pub certificate_expires: Option<WallTime>,
    /// Whether it takes clients: it has joined the cluster in its present life.
    pub takes_clients: bool,
    /// Whether more than half of the brokers have heard it a moment ago. Otherwise it does not read from clients.
    pub has_quorum: bool,
    /// Number of distinct topic filters that its sessions have subscribed to.
    pub filters: usize,
    /// The other brokers, by name.
    pub members: Vec<MemberView>,
    /// Addresses to which there is no link, with the reason.
    pub problems: Vec<Problem>,
}

/// Another broker.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct MemberView {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// `joining`, `up`, `unreachable`, `down` or `left`.
    pub state: &'static str,
    /// When it came to this state.
    #[serde(skip)]
    pub since: MonoTime,
    /// Its incarnation.
    pub incarnation: u64,
    /// The version of its software.
    pub software: String,
    /// Whether it hears this broker.
    pub hears_us: bool,
    /// Milliseconds that its clock is ahead of that of this broker.
    pub clock_ahead: i64,
    /// Names of the settings that all brokers should have in common and that this one has otherwise than the broker that is
    /// asked.
    pub other_settings: Vec<&'static str>,
    /// Number of distinct topic filters that it has told.
    pub filters: usize,
    /// Number of wills of its clients that this broker keeps.
    pub wills: usize,
    /// The messages to it.
    pub link: LinkView,
    /// The objects of which all brokers have replicas.
    pub replicas: ReplicasView,
}

/// The messages to another broker, over the links of all threads.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct LinkView {
    /// Messages that were put on the way.
    pub messages: u64,
    /// Messages of QoS 0 for which there was no room.
    pub lost: u64,
    /// Bytes that wait to be sent or acknowledged.
    pub waiting: u64,
}

/// The replicas of another broker: users and other managed objects, and retained messages.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct ReplicasView {
    /// Whether they were the same as here when they were last compared. `None`: they never were.
    pub are_same: Option<bool>,
    /// Parts of 1,024 that differed then.
    pub differing_parts: usize,
    /// Objects that were sent to the broker.
    pub sent: u64,
    /// Objects that came from it and were later than the own ones.
    pub received: u64,
}

impl From<ReplicaCounts> for ReplicasView {
    fn from(counts: ReplicaCounts) -> Self {
        let ReplicaCounts { differing, compared_at, sent, received, .. } = counts;
        let are_same = compared_at.map(|_| differing == 0);
        Self { are_same, differing_parts: differing, sent, received }
    }
}

/// An address to which there is no link.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = LinkProblem)]
pub struct Problem {
    /// The address.
    pub address: String,
    /// The reason.
    pub reason: String,
}

impl Clustering {
    /// Returns the cluster as this broker sees it. `threads` is the number of IO threads.
    pub fn view(&self, now: MonoTime, threads: usize) -> View {
        let members = self.membership.members();
        let me = members.me().clone();
        let others = members.others().map(|member| {
            let place = self.place(&member.identity.name).expect("a member has a place");
            let counts = (0..threads).map(|thread| self.engine().link(thread, place).counts());
            let sum = counts.fold(LinkCounts::default(), |sum, one| LinkCounts {
                messages: sum.messages + one.messages,
                lost: sum.lost + one.lost,
                waiting: sum.waiting + one.waiting,
            });
            let LinkCounts { messages, lost, waiting } = sum;
            MemberView {
                name: member.identity.name.clone(),
                address: member.identity.address.clone(),
                state: name(member.state),
                since: member.since,
                incarnation: member.identity.incarnation,
                software: member.identity.software.clone(),
                hears_us: member.hears_us,
                clock_ahead: member.ahead,
                other_settings: members.other_settings(member),
                filters: self.engine().filters_of(place),
                wills: self.engine().wills_of(place),
                link: LinkView { messages, lost, waiting },
                replicas: self.engine().replicas(place).counts().into(),
            }
        });
        let others = others.collect();
        let (takes_clients, has_quorum) = (!members.is_joining(), members.has_quorum(now));
        drop(members);
        let problem = |(address, reason): (&String, &String)| Problem {
            address: address.clone(),
            reason: reason.clone(),
        };
        View {
            cluster: me.cluster,
            broker: me.name,
            address: me.address,
            incarnation: me.incarnation,
            encrypted: self.encrypted,
            certificate_expires: *self.certificate_expires.lock(),
            takes_clients,
            has_quorum,
            filters: self.engine().filters(),
            members: others,
            problems: self.problems.lock().iter().map(problem).collect(),
        }
    }
}

/// Returns the broker that an event is about, and its state then; `None`: it is about this broker.
pub fn state_after(event: &Event) -> Option<(&str, &'static str)> {
    let (member, state) = match event {
        Event::Joining(member) => (member, State::Joining),
        Event::Up(member) => (member, State::Up),
        Event::Unreachable(member) => (member, State::Unreachable),
        Event::Down(member) => (member, State::Down),
        Event::Left(member) => (member, State::Left),
        Event::Condemned(_) | Event::Isolated | Event::Estranged(_) => return None,
    };
    Some((member, name(state)))
}

/// Returns the name of a state.
pub fn name(state: State) -> &'static str {
    match state {
        State::Joining => "joining",
        State::Up => "up",
        State::Unreachable => "unreachable",
        State::Down => "down",
        State::Left => "left",
    }
}
