//! A sender: one link, on which the messages of its sessions are sent in turns.

use anyhow::bail;
use barid_amqp::DeliveryState;
use barid_amqp::frame::{
    self, Attach, Disposition, Performative, ReceiverSettles, Role, SenderSettles, Terminus,
};
use hdrhistogram::Histogram;

use super::Options;
use super::connection::{Session, expected, failed};
use super::ledger::Ledger;
use super::template::Template;
use super::unsettled::Unsettled;

/// Unwritten output, in bytes, above which no further message is encoded.
const UNWRITTEN_MAX: usize = 256 * 1024;

pub struct Sender {
    index: u32,
    /// Created once the maximum frame size is known.
    template: Option<Template>,
    sessions: Vec<u32>,
    next_session: usize,
    /// Delivery count of the link at which the credit ends.
    credit_until: u32,
    sent: u32,
    unsettled: Unsettled<u64>,
    /// Number of messages that may be sent before an earlier one has come through.
    pub window: u32,
}

impl Sender {
    /// Creates sender number `index`.
    pub fn new(options: &Options, index: u32) -> Self {
        let sessions = (index..options.sessions).step_by(options.senders as usize).collect();
        Self {
            index,
            template: None,
            sessions,
            next_session: 0,
            credit_until: 0,
            sent: 0,
            unsettled: Unsettled::new(),
            window: options.window,
        }
    }

    /// Attaches the link.
    pub fn begin(
        &mut self,
        options: &Options,
        session: &Session,
        output: &mut Vec<u8>,
    ) -> anyhow::Result<()> {
        self.template = Some(Template::new(options.size as usize, session.frame_max)?);
        let attach = Attach {
            name: format!("bench-sender-{}-{}", std::process::id(), self.index),
            handle: 0,
            role: Role::Sender,
            sender_settles: SenderSettles::Unsettled,
            receiver_settles: ReceiverSettles::First,
            source: Some(Terminus::source("bench")),
            target: Some(Terminus::target(&options.queue)),
            initial_delivery_count: Some(0),
            max_message_size: None,
            properties: Default::default(),
        };
        frame::encode(output, 0, &Performative::Attach(Box::new(attach)), &[]);
        Ok(())
    }

    /// Handles a frame of the broker. Returns whether the frame has attached the link.
    pub fn hear(
        &mut self,
        performative: &Performative,
        now: u64,
        latencies: &mut Histogram<u64>,
        ledger: &mut Ledger,
    ) -> anyhow::Result<bool> {
        match performative {
            Performative::Attach(attach) => return Ok(attach.target.is_some()),
            Performative::Detach(detach) => bail!(failed("a sender", detach.error.as_ref())),
            Performative::Flow(flow) if flow.handle.is_some() => {
                let credit = expected(flow.link_credit)?;
                self.credit_until = flow.delivery_count.unwrap_or(0).wrapping_add(credit);
            }
            Performative::Disposition(Disposition {
                role: Role::Receiver,
                first,
                last,
                state,
                ..
            }) => {
                let is_accepted = *state == Some(DeliveryState::Accepted);
                let window = &mut self.window;
                self.unsettled.settle(*first, last.unwrap_or(*first), |due| {
                    if is_accepted {
                        ledger.counts.accepted += 1;
                        latencies.saturating_record(now.saturating_sub(due));
                    } else {
                        ledger.counts.refused += 1;
                        *window += 1;
                    }
                });
            }
            _ => {}
        }
        Ok(false)
    }

    /// Whether a message can be sent now.
    pub fn can_send(&self, session: &Session, unwritten: usize) -> bool {
        let has_credit = self.credit_until.wrapping_sub(self.sent) as i32 > 0;
        let has_room = self.template.as_ref().is_some_and(|one| session.has_room(one.frames));
        has_credit && has_room && unwritten < UNWRITTEN_MAX
    }

    /// Sends a message that was due at microsecond `due`.
    pub fn send(
        &mut self,
        due: u64,
        session: &mut Session,
        ledger: &mut Ledger,
        output: &mut Vec<u8>,
    ) {
        let Some(template) = &self.template else { return };
        let stamp = ledger.send(self.sessions[self.next_session], due);
        self.next_session = (self.next_session + 1) % self.sessions.len();
        template.append(self.unsettled.push(due), &stamp, output);
        session.sent(template.frames);
        self.sent = self.sent.wrapping_add(1);
    }
}
