//! Requests that peek at messages or delete them, and responses that contain messages.

use std::sync::Arc;

use barid_amqp::Error;
use barid_amqp::message::{Sections, ValueRef};
use barid_core::entity::{Delivery, Entry, LockToken, Mode, Outcome, Part};
use barid_core::time::WallTime;

use super::{Addressee, Asked, Done};
use crate::amqp::container::Container;
use crate::amqp::encode::{encode, uuid_of};
use crate::amqp::held::Answer;
use crate::amqp::loading::For;
use crate::amqp::refusals::closed;
use crate::durable::Commits;
use crate::entities::Queue;
use crate::turn::Turn;

/// Maximum number of messages in one response.
const MESSAGES_MAX: usize = 1_000;

/// Bytes of messages at which no further message is added to a response.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Maximum number of messages that one request deletes.
const DELETED_MAX: usize = 4_000;

/// The messages of a response.
#[derive(Debug)]
pub(crate) struct Page {
    messages: Vec<Found>,
    /// Only the sections before the body are wanted.
    without_body: bool,
}

#[derive(Debug)]
struct Found {
    entry: Entry,
    /// `None` while the bytes are being read, and if they are lost.
    bytes: Option<Arc<[u8]>>,
    lock: Option<(LockToken, WallTime)>,
    /// The token that completes the message when its bytes have been read. A message that is received and deleted,
    /// but whose bytes are in the store only, is locked until then.
    completes: Option<LockToken>,
}

/// A response some of whose messages are being read from the store.
#[derive(Debug)]
pub(crate) struct Gathering {
    to: Addressee,
    queue: Arc<Queue>,
    part: Part,
    page: Page,
    commits: Commits,
    missing: usize,
    /// Approximate size of the response, in bytes.
    size: usize,
}

impl Page {
    /// Creates the page for messages that were received.
    pub(super) fn of_deliveries(deliveries: Vec<Delivery>, mode: Mode) -> Self {
        let found = |Delivery { token, entry, locked_until }: Delivery| {
            let lock = (mode == Mode::PeekLock).then_some((token, locked_until));
            let reads = entry.body.bytes.is_none();
            let completes = (mode == Mode::ReceiveAndDelete && reads).then_some(token);
            Found { completes, ..Found::new(entry, lock) }
        };
        Self { messages: deliveries.into_iter().map(found).collect(), without_body: false }
    }

    /// Encodes the response. Messages whose bytes are lost are left out.
    fn encode(&self, to: &Addressee) -> Vec<u8> {
        let messages: Vec<_> =
            self.messages.iter().filter_map(|found| self.encode_one(found)).collect();
        if messages.is_empty() {
            return to.encode(204, "No Content", None, |_| {});
        }
        to.encode(200, "OK", None, |map| {
            map.value(ValueRef::String("messages"));
            map.list(|list| {
                for (message, token) in &messages {
                    list.map(|map| {
                        map.entry("message", ValueRef::Binary(message));
                        if let Some(token) = token {
                            map.entry("lock-token", ValueRef::Uuid(uuid_of(*token)));
                        }
                    });
                }
            });
        })
    }

    fn encode_one(&self, found: &Found) -> Option<(Vec<u8>, Option<LockToken>)> {
        let mut bytes = &**found.bytes.as_ref()?;
        if self.without_body {
            let body = Sections::split(bytes).ok()?.body().len();
            bytes = &bytes[..bytes.len() - body];
        }
        let mut message = Vec::new();
        encode(&found.entry, bytes, found.lock, &mut message).ok()?;
        Some((message, found.lock.map(|(token, _)| token)))
    }
}

impl Found {
    fn new(mut entry: Entry, lock: Option<(LockToken, WallTime)>) -> Self {
        let bytes = entry.body.bytes.take();
        Self { entry, bytes, lock, completes: None }
    }
}

/// `peek-message`: reads messages without locking them.
pub(super) fn peek(asked: &mut Asked<'_>) -> Result<Done, Error> {
    let from = u64::try_from(asked.integer("from-sequence-number")?).unwrap_or(0);
    let most = asked.count("message-count", MESSAGES_MAX)?;
    // Microsoft's client for Go names the session only by its link.
    let said = asked.request.argument("session-id").text().map(Arc::from);
    let session = said.or_else(|| asked.session_of_link());
    let (mut messages, mut bytes) = (Vec::new(), 0);
    asked.queue.mark_used();
    asked.queue.read(|entity| {
        entity.peek(asked.part, from, most, session.as_deref(), |entry| {
            bytes += entry.body.size as usize;
            messages.push(Found::new(entry.clone(), None));
            bytes < BYTES_MAX
        });
    });
    let without_body = asked.request.argument("omit-message-body") == ValueRef::Bool(true);
    Ok(Done::Messages(Page { messages, without_body }))
}

/// `batch-delete-messages`: deletes the first messages that were enqueued before a time and are not locked.
pub(super) fn delete(asked: &mut Asked<'_>) -> Result<Done, Error> {
    let most = asked.count("message-count", DELETED_MAX)?;
    let before = asked.request.argument("enqueued-time-utc").timestamp();
    let before =
        before.map_or(asked.now, |at| WallTime::from_millis(u64::try_from(at).unwrap_or(0)));
    let part = asked.part;
    let deleted = asked
        .queue
        .with(asked.commits, |entity, effects| entity.delete_before(part, most, before, effects));
    if deleted == 0 {
        return Ok(Done::Nothing);
    }
    let deleted = i32::try_from(deleted).expect("not more than were asked for");
    Ok(Done::body(move |map| map.entry("message-count", ValueRef::Int(deleted))))
}

impl Container {
    /// Responds with messages, after those that are in the store only have been read.
    pub(super) fn respond_with_messages(
        &mut self,
        turn: &Turn<'_>,
        (queue, part): (&Arc<Queue>, Part),
        to: Addressee,
        page: Page,
        commits: Commits,
    ) {
        let missing: Vec<_> = page
            .messages
            .iter()
            .enumerate()
            .filter(|(_, found)| found.bytes.is_none())
            .map(|(index, found)| (index, found.entry.body.id))
            .collect();
        if missing.is_empty() {
            let message = page.encode(&to);
            self.answer(turn, commits, Answer::Response(to.link, message));
            return;
        }
        let size = page.messages.iter().map(|found| found.entry.body.size as usize).sum();
        self.responding += size;
        let gathering = Gathering {
            to,
            queue: Arc::clone(queue),
            part,
            page,
            commits,
            missing: missing.len(),
            size,
        };
        let number = self.loading.gather(gathering);
        let wanted = missing.into_iter().map(|(index, id)| (For::Response(number, index), id));
        self.load(queue, wanted.collect());
    }

    /// Adds a message that has been read to its response; `None`: the message is lost. The response is sent when
    /// no message is missing.
    pub(crate) fn on_gathered(
        &mut self,
        turn: &Turn<'_>,
        number: u64,
        index: usize,
        bytes: Option<Arc<[u8]>>,
    ) {
        let Some(gathering) = self.loading.gathering(number) else { return };
        gathering.page.messages[index].bytes = bytes;
        gathering.missing -= 1;
        if gathering.missing > 0 {
            return;
        }
        let gathering = self.loading.take(number).expect("it was just seen");
        let Gathering { to, queue, part, page, mut commits, size, .. } = gathering;
        self.responding -= size;
        let now = turn.context.wall();
        queue.with(&mut commits, |entity, effects| {
            for token in page.messages.iter().filter_map(|found| found.completes) {
                // Refused if the lock has ended meanwhile: then another receiver gets the message, too.
                let _ = entity.settle(part, token, Outcome::Complete, now, effects);
            }
        });
        let message = match commits.are_lost() {
            // The shard was closed meanwhile: a lost batch never becomes durable.
            true => {
                commits.clear();
                to.encode_error(&closed())
            }
            false => page.encode(&to),
        };
        self.answer(turn, commits, Answer::Response(to.link, message));
    }
}
