//! `…/messages`: messages in a queue or subscription, which are listed without being received, removed, or, if they are
//! dead letters, resubmitted.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use barid_core::entity::{Entry, Part};
use barid_engine::entities::Queue;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::super::body;
use super::super::changing::change;
use super::super::page::check_limit;
use super::message::{BODY_MAX, Described};
use crate::admin::Served;
use crate::admin::answer::{Answer, Refusal};

/// Maximum number of messages in one answer.
const LIMIT_MAX: usize = 1_000;

/// Maximum number of bytes of the messages in one answer. One message is always included.
pub(super) const BYTES_MAX: usize = 16 * 1024 * 1024;

/// Maximum number of dead letters that are resubmitted under one lock of their entity.
const RESUBMITTED_TOGETHER: usize = 256;

/// The query of a list.
pub type Asked = Result<Query<Question>, QueryRejection>;

/// The query of a purge.
pub type Whole = Result<Query<Of>, QueryRejection>;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Question {
    /// `main` (the default), `dead-letter` or `transfer-dead-letter`.
    #[param(inline)]
    part: PartName,
    /// The number of the first message that is listed.
    from: u64,
    /// Maximum number of items in the answer; 100 if it is not given.
    limit: usize,
    /// Only messages of this session.
    session: Option<String>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Of {
    /// `main` (the default), `dead-letter` or `transfer-dead-letter`.
    #[param(inline)]
    part: PartName,
}

/// The query of a resubmission.
pub type Dead = Result<Query<OfDead>, QueryRejection>;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OfDead {
    /// `dead-letter` (the default) or `transfer-dead-letter`.
    #[param(inline)]
    part: PartName,
}

impl Default for OfDead {
    fn default() -> Self {
        Self { part: PartName::DeadLetter }
    }
}

/// The body of a resubmission.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = ChosenMessages)]
pub(super) struct Chosen {
    /// `None`: all that are there when the request arrives.
    sequence_numbers: Option<Vec<u64>>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PartName {
    #[default]
    Main,
    DeadLetter,
    TransferDeadLetter,
}

impl Default for Question {
    fn default() -> Self {
        Self { part: PartName::Main, from: 0, limit: 100, session: None }
    }
}

impl From<PartName> for Part {
    fn from(name: PartName) -> Self {
        match name {
            PartName::Main => Self::Main,
            PartName::DeadLetter => Self::DeadLetter,
            PartName::TransferDeadLetter => Self::TransferDeadLetter,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QueueMessageList)]
pub struct Page {
    messages: Vec<Described>,
    /// The number of the next message, if there are more: the next page is the one `from` it.
    next: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PurgedMessages)]
pub struct Purged {
    /// Number of messages that were removed.
    removed: u64,
}

#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = ResubmittedMessages)]
pub struct Resubmitted {
    /// Number of messages that can be received again.
    resubmitted: u64,
    /// Messages that are not there any more, that a receiver has, or that the entity refuses.
    skipped: u64,
    /// Why the first of them was skipped.
    problem: Option<String>,
}

/// Lists messages by their numbers.
pub fn list(queue: &Queue, asked: Asked) -> Answer<Page> {
    let Query(question) = asked?;
    check_limit(question.limit, LIMIT_MAX)?;
    // Some may have to be read from the disk, which takes time. This thread may block.
    Ok(Json(page(queue, &question)))
}

fn page(queue: &Queue, question: &Question) -> Page {
    let (mut entries, mut next, mut bytes) = (Vec::<Entry>::new(), None, 0);
    let (part, session) = (question.part.into(), question.session.as_deref());
    // One more than wanted, to detect whether there are more.
    queue.read(|entity| {
        entity.peek(part, question.from, question.limit + 1, session, |entry| {
            bytes += entry.body.size as usize;
            if entries.len() == question.limit || bytes > BYTES_MAX && !entries.is_empty() {
                next = Some(entry.number);
                return false;
            }
            entries.push(entry.clone());
            true
        });
    });
    let messages = entries.iter().map(|entry| {
        // A message that is missing was taken meanwhile. One that cannot be read is described without its
        // contents.
        let bytes = entry.body.bytes.clone().or_else(|| stored(queue, entry));
        Described::of(entry, bytes.as_deref(), BODY_MAX)
    });
    Page { messages: messages.collect(), next }
}

/// Reads the bytes of a message whose bytes are in the store only. Returns `None` if it was taken meanwhile, or cannot be
/// read.
pub(super) fn stored(queue: &Queue, entry: &Entry) -> Option<Arc<[u8]>> {
    let (tenant, name, number) = (queue.tenant(), queue.tenant_name(), queue.number());
    queue.shard().body(tenant, name, number, entry.body.id).ok().flatten()
}

/// Removes all messages of a part.
pub async fn purge(served: &Served, queue: &Queue, whole: Whole) -> Answer<Purged> {
    let part = whole?.0.part.into();
    let purge = |commits: &mut _| Ok(queue.with(commits, |entity, fx| entity.purge(part, fx)));
    Ok(Json(Purged { removed: change(served, purge).await? }))
}

/// Moves dead letters back among the messages that wait for receivers.
pub async fn resubmit(
    served: &Served,
    queue: &Queue,
    dead: Dead,
    bytes: &Bytes,
) -> Answer<Resubmitted> {
    let part = Part::from(dead?.0.part);
    if part == Part::Main {
        let sentence = "only dead letters can be resubmitted: part=dead-letter or \
                        part=transfer-dead-letter";
        return Err(Refusal::bad_request(sentence));
    }
    let Chosen { sequence_numbers } = body::properties(bytes)?;
    // Those that arrive meanwhile stay: a message that fails again at once must not go round for ever.
    let numbers = sequence_numbers.unwrap_or_else(|| {
        let mut numbers = Vec::new();
        queue.read(|entity| {
            entity.peek(part, 0, usize::MAX, None, |entry| {
                numbers.push(entry.number);
                true
            });
        });
        numbers
    });
    let now = served.shared.engine.clock.wall();
    let resubmit = |commits: &mut _| {
        let mut done = Resubmitted::default();
        for group in numbers.chunks(RESUBMITTED_TOGETHER) {
            queue.with(commits, |entity, fx| {
                for number in group {
                    match entity.resubmit(part, *number, now, fx) {
                        Ok(_) => done.resubmitted += 1,
                        Err(refusal) => {
                            done.skipped += 1;
                            let problem = || format!("message {number}: {refusal}");
                            done.problem.get_or_insert_with(problem);
                        }
                    }
                }
            });
        }
        Ok(done)
    };
    Ok(Json(change(served, resubmit).await?))
}
