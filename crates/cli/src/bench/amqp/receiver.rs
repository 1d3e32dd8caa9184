//! A receiver: several links, each of which holds one session at a time.

use anyhow::{Context as _, bail, ensure};
use barid_amqp::frame::{
    self, Attach, Detach, Disposition, Performative, ReceiverSettles, Role, SenderSettles,
    Terminus, Transfer,
};
use barid_amqp::message::ValueRef;
use barid_amqp::{DeliveryState, Fields};
use hdrhistogram::Histogram;

use super::Options;
use super::connection::{Session, expected, failed};
use super::ledger::{Ledger, STRANGE};
use super::template::Stamp;
use super::unsettled::Unsettled;

const SESSION_FILTER: &str = "com.microsoft:session-filter";
const TIMEOUT: &str = "com.microsoft:timeout";

/// Marks a handle without a link.
const NONE: u32 = u32::MAX;

/// Time that the broker may take to find the next session, in milliseconds.
const TIMEOUT_MS: u32 = 60_000;

/// Time without messages after which a session is released, in microseconds, if sessions are
/// released at all.
const IDLE: u64 = 20_000;

pub struct Receiver {
    name: String,
    queue: String,
    size: usize,
    is_plain: bool,
    credit: u32,
    taken: Option<u32>,
    links: Vec<Link>,
    unsettled: Unsettled<Held>,
    /// Bytes received so far of a message in several frames.
    partial: Vec<u8>,
    partial_id: Option<u32>,
    /// Number of attaches so far.
    attached: u32,
    /// Link for each handle that the broker has assigned.
    by_handle: Vec<u32>,
}

struct Link {
    name: String,
    state: State,
    /// Microsecond at which that state began, or at which something last happened.
    since: u64,
    delivery_count: u32,
    credit: u32,
    /// Messages received and not completed.
    open: u32,
    /// Messages received since the link was attached.
    taken: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Attaching,
    Attached,
    /// The attach was answered without a source; a detach with the error follows.
    Refused,
    Detaching,
}

struct Held {
    link: u32,
    session: Option<u32>,
}

/// Results that a receiver reports.
pub struct Measured<'a> {
    /// Microseconds from when a message was due until it is received.
    pub received: &'a mut Histogram<u64>,
    /// Microseconds until a session is accepted.
    pub accepted: &'a mut Histogram<u64>,
    /// Sessions of the completed messages.
    pub completed: &'a mut Vec<u32>,
    pub ledger: &'a mut Ledger,
}

impl Receiver {
    /// Creates receiver number `index`.
    pub fn new(options: &Options, index: u32) -> Self {
        let taken = options.taken();
        Self {
            name: format!("bench-receiver-{}-{index}", std::process::id()),
            queue: options.queue.clone(),
            size: options.size as usize,
            is_plain: options.plain,
            credit: options.credit.min(taken.unwrap_or(u32::MAX)),
            taken,
            links: Vec::with_capacity(options.links() as usize),
            unsettled: Unsettled::new(),
            partial: Vec::new(),
            partial_id: None,
            attached: 0,
            by_handle: Vec::new(),
        }
    }

    /// Attaches `count` links.
    pub fn begin(&mut self, count: u32, now: u64, output: &mut Vec<u8>) {
        for handle in 0..count {
            let link = self.attach(handle, now, output);
            self.links.push(link);
        }
    }

    /// Returns the settle mode: RabbitMQ knows only `First`, and clients of Service Bus use
    /// `Second`.
    fn settles(&self) -> ReceiverSettles {
        if self.is_plain { ReceiverSettles::First } else { ReceiverSettles::Second }
    }

    /// Sends the attach of a link.
    fn attach(&mut self, handle: u32, now: u64, output: &mut Vec<u8>) -> Link {
        let mut source = Terminus::source(&self.queue);
        let mut properties = Fields::new();
        if !self.is_plain {
            source = source.with_filter(&Fields::new().with(SESSION_FILTER, ValueRef::Null));
            properties = properties.with(TIMEOUT, TIMEOUT_MS);
        }
        let name = format!("{}-{}", self.name, self.attached);
        let attach = Attach {
            name: name.clone(),
            handle,
            role: Role::Receiver,
            sender_settles: SenderSettles::Unsettled,
            receiver_settles: self.settles(),
            source: Some(source),
            target: Some(Terminus::target("bench")),
            initial_delivery_count: None,
            max_message_size: None,
            properties,
        };
        self.attached += 1;
        frame::encode(output, 0, &Performative::Attach(Box::new(attach)), &[]);
        let state = State::Attaching;
        Link { name, state, since: now, delivery_count: 0, credit: 0, open: 0, taken: 0 }
    }

    /// Handles a frame of the broker.
    pub fn hear(
        &mut self,
        performative: Performative,
        payload: &[u8],
        now: u64,
        session: &Session,
        measured: &mut Measured<'_>,
        output: &mut Vec<u8>,
    ) -> anyhow::Result<()> {
        match performative {
            Performative::Transfer(transfer) => {
                self.transferred(&transfer, payload, now, session, measured, output)
            }
            Performative::Disposition(disposition) if disposition.role == Role::Sender => {
                self.settled(&disposition, now, measured, output);
                Ok(())
            }
            Performative::Attach(attach) => self.accepted(&attach, now, session, measured, output),
            Performative::Detach(detach) => self.detached(&detach, now, output),
            _ => Ok(()),
        }
    }

    /// Returns the number of the link to which the broker has assigned this handle.
    fn link(&self, handle: u32) -> anyhow::Result<u32> {
        expected(self.by_handle.get(handle as usize).copied().filter(|link| *link != NONE))
    }

    fn accepted(
        &mut self,
        attach: &Attach,
        now: u64,
        session: &Session,
        measured: &mut Measured<'_>,
        output: &mut Vec<u8>,
    ) -> anyhow::Result<()> {
        let credit = self.credit;
        let index = expected(self.links.iter().position(|link| link.name == attach.name))?;
        let handle = attach.handle as usize;
        ensure!(handle <= self.links.len(), "the broker skipped a link handle");
        if self.by_handle.len() <= handle {
            self.by_handle.resize(handle + 1, NONE);
        }
        self.by_handle[handle] = index as u32;
        let link = &mut self.links[index];
        if attach.source.is_none() {
            link.state = State::Refused;
            return Ok(());
        }
        measured.accepted.saturating_record(now.saturating_sub(link.since));
        link.state = State::Attached;
        link.since = now;
        link.delivery_count = expected(attach.initial_delivery_count)?;
        link.credit = credit;
        session.give_credit(index as u32, link.delivery_count, credit, output);
        Ok(())
    }

    /// Attaches a link again after the broker ended it, to ask for the next session.
    fn detached(&mut self, detach: &Detach, now: u64, output: &mut Vec<u8>) -> anyhow::Result<()> {
        if let Some(error) = &detach.error {
            let is_usual = [TIMEOUT, "com.microsoft:session-lock-lost"];
            if !is_usual.contains(&error.condition.as_ref()) {
                bail!(failed("a receiver", Some(error)));
            }
        }
        let handle = self.link(detach.handle)?;
        self.by_handle[detach.handle as usize] = NONE;
        if self.links[handle as usize].state != State::Detaching {
            let answer = Detach { handle, closed: true, error: None };
            frame::encode(output, 0, &Performative::Detach(answer), &[]);
        }
        self.unsettled.forget(|held| held.link == handle);
        self.links[handle as usize] = self.attach(handle, now, output);
        Ok(())
    }

    fn transferred(
        &mut self,
        transfer: &Transfer,
        payload: &[u8],
        now: u64,
        session: &Session,
        measured: &mut Measured<'_>,
        output: &mut Vec<u8>,
    ) -> anyhow::Result<()> {
        let id = transfer.delivery_id.or(self.partial_id);
        let message = if transfer.more || !self.partial.is_empty() {
            self.partial_id = id;
            self.partial.extend_from_slice(payload);
            if transfer.more {
                return Ok(());
            }
            &self.partial[..]
        } else {
            payload
        };
        let stamp = Stamp::of(message, self.size);
        self.partial.clear();
        self.partial_id = None;
        let id = expected(id)?;
        let handle = self.link(transfer.handle)?;
        if self.links[handle as usize].state != State::Attached {
            // The transfer crossed the end of the link; the message is delivered again.
            return self.unsettled.push_as(id, Held { link: handle, session: None });
        }

        let stamp = stamp.context(STRANGE)?;
        let is_new = measured.ledger.received(&stamp)?;
        if is_new {
            measured.received.saturating_record(now.saturating_sub(stamp.due));
        }
        let held = Held { link: handle, session: is_new.then_some(stamp.session) };
        self.unsettled.push_as(id, held)?;
        complete(id, output);

        let (credit, taken) = (self.credit, self.taken);
        let link = &mut self.links[handle as usize];
        link.since = now;
        link.open += 1;
        link.taken += 1;
        link.delivery_count = link.delivery_count.wrapping_add(1);
        link.credit = link.credit.saturating_sub(1);
        // Credit never exceeds the number of messages still to be taken from the session.
        let wanted = taken.map_or(credit, |taken| credit.min(taken.saturating_sub(link.taken)));
        if link.credit <= credit / 2 && wanted > link.credit {
            link.credit = wanted;
            session.give_credit(handle, link.delivery_count, wanted, output);
        }
        Ok(())
    }

    /// Notes the messages that the broker has removed.
    fn settled(
        &mut self,
        disposition: &Disposition,
        now: u64,
        measured: &mut Measured<'_>,
        output: &mut Vec<u8>,
    ) {
        let Self { links, unsettled, taken, .. } = self;
        let is_accepted = matches!(disposition.state, Some(DeliveryState::Accepted) | None);
        let last = disposition.last.unwrap_or(disposition.first);
        unsettled.settle(disposition.first, last, |held| {
            let Some(link) = links.get_mut(held.link as usize) else { return };
            link.open -= 1;
            link.since = now;
            if let Some(session) = held.session.filter(|_| is_accepted) {
                measured.completed.push(session);
                measured.ledger.counts.completed += 1;
            }
            if taken.is_some_and(|taken| link.taken >= taken) && link.open == 0 {
                detach(link, held.link, now, output);
            }
        });
    }

    /// Releases sessions without messages; called regularly.
    pub fn look(&mut self, now: u64, output: &mut Vec<u8>) {
        if self.taken.is_none() {
            return;
        }
        for (handle, link) in self.links.iter_mut().enumerate() {
            let is_idle = link.open == 0 && now.saturating_sub(link.since) > IDLE;
            if link.state == State::Attached && is_idle {
                detach(link, handle as u32, now, output);
            }
        }
    }
}

fn detach(link: &mut Link, handle: u32, now: u64, output: &mut Vec<u8>) {
    link.state = State::Detaching;
    link.since = now;
    let detach = Detach { handle, closed: true, error: None };
    frame::encode(output, 0, &Performative::Detach(detach), &[]);
}

/// Completes each message on its own and waits for the broker's confirmation, as clients of Service
/// Bus do.
fn complete(id: u32, output: &mut Vec<u8>) {
    let disposition = Disposition {
        role: Role::Receiver,
        first: id,
        last: None,
        settled: false,
        state: Some(DeliveryState::Accepted),
    };
    frame::encode(output, 0, &Performative::Disposition(disposition), &[]);
}
