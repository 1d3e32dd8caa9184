//! Control links: heartbeats, the topic filters of the speaker's clients, and wills that the hearer keeps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use barid_engine::cluster::MemberRef;
use barid_engine::engine::Engine;
use barid_engine::links::Speaker;
use barid_peers::{Frame, FrameError, Refusal, Timing, decode};
use tokio::io::{AsyncReadExt as _, ReadHalf};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::{MissedTickBehavior, interval};

use tracing::warn;

use super::Stop;
use super::greeting::{Greeted, NoLink, send};
use crate::cluster::{Clustering, Connected, LinkStream};

/// Maximum length of a frame of a control link.
const FRAME_MAX: usize = 1024 * 1024;

/// Time after which a link whose heartbeats the other broker does not hear is opened anew.
const UNHEARD: Duration = Duration::from_secs(4);

/// Speaks on a control link until it ends: sends heartbeats, and tells changes of this broker's subscriptions.
pub async fn speak(
    clustering: &Clustering,
    engine: &Engine,
    link: Greeted,
    place: MemberRef,
    mut stop: Stop,
) -> Result<(), NoLink> {
    let peer = link.outcome.peer;
    let (read, mut write) = tokio::io::split(link.stream);
    let mut frames = Frames { read, bytes: link.unread, handled: 0 };
    let mut connected = clustering.connected.subscribe();
    let (mut news, mut lives) = (clustering.news.subscribe(), clustering.lives.subscribe());
    let mut ticks = interval(Timing::default().heartbeat);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut speaker = Speaker::default();
    let mut out = Vec::new();
    let mut heard_at = Instant::now();
    let mut has_more = false;
    loop {
        tokio::select! {
            // A part at a time, so that heartbeats are not late, however much there is to tell.
            () = std::future::ready(()), if has_more => {}
            _ = ticks.tick() => {
                speaker.beat(clustering.membership.heartbeat(engine));
                let members = clustering.membership.members();
                if members.get(&peer.name).is_some_and(|member| member.hears_us) {
                    heard_at = Instant::now();
                }
            }
            _ = news.changed() => {}
            next = connected.recv() => tell_connected(next, &mut connected, &mut out),
            // The new life needs new links.
            _ = lives.changed() => return Ok(()),
            () = stop.stopped() => {
                while speaker.speak(clustering.engine(), place, &mut out) {
                    send(&mut write, &out).await?;
                    out.clear();
                }
                Frame::Leaving.encode(&mut out);
                send(&mut write, &out).await?;
                return Ok(());
            }
            frame = frames.next() => match frame? {
                Heard::Version(version) => {
                    clustering.membership.is_heard((&peer, place), version);
                }
                Heard::End => return Ok(()),
            },
        }
        if heard_at.elapsed() > UNHEARD {
            return Ok(());
        }
        has_more = speaker.speak(clustering.engine(), place, &mut out);
        send(&mut write, &out).await?;
        out.clear();
    }
}

/// Tells of a client that has connected, and of those after it.
fn tell_connected(
    first: Result<Arc<Connected>, RecvError>,
    connected: &mut Receiver<Arc<Connected>>,
    out: &mut Vec<u8>,
) {
    let mut next = first.map_err(|error| match error {
        RecvError::Lagged(missed) => TryRecvError::Lagged(missed),
        RecvError::Closed => TryRecvError::Closed,
    });
    loop {
        match next {
            Ok(one) => {
                let Connected { tenant, client_id, at, begins_anew } = &*one;
                let (at, begins_anew) = (*at, *begins_anew);
                Frame::Connected { tenant, client: client_id, at, begins_anew }.encode(out);
            }
            Err(TryRecvError::Lagged(missed)) => warn!(
                missed,
                "more clients connect than a link to another broker can tell: some of them may stay connected to two brokers"
            ),
            Err(TryRecvError::Empty | TryRecvError::Closed) => return,
        }
        next = connected.try_recv();
    }
}

/// Hears on a control link until it ends: heartbeats, and the subscriptions of the other broker.
pub async fn hear(
    clustering: &Clustering,
    engine: &Arc<Engine>,
    link: Greeted,
    place: MemberRef,
    mut stop: Stop,
) -> Result<(), NoLink> {
    let peer = link.outcome.peer;
    clustering.on_hello(engine, &peer);
    let turn = clustering.takes_turn(&peer.name);
    let (membership, watching) = (&clustering.membership, clustering.watching(engine));
    let (mut stream, mut bytes) = (link.stream, link.unread);
    let mut lives = clustering.lives.subscribe();
    let mut out = Vec::new();
    loop {
        let mut handled = 0;
        // A later link of the same broker tells all subscriptions anew, and what this one says is out of date.
        if !clustering.has_turn(&peer.name, turn) {
            return Ok(());
        }
        while let Some((frame, len)) = decode(&bytes[handled..], FRAME_MAX).map_err(broken)? {
            handled += len;
            if !clustering.is_member(&peer) {
                Frame::Refused(Refusal::Down).encode(&mut out);
                send(&mut stream, &out).await?;
                return Ok(());
            }
            let heard = membership.hear(engine, (&peer, place), frame, &watching, &mut out);
            heard.map_err(broken)?;
        }
        bytes.drain(..handled);
        send(&mut stream, &out).await?;
        out.clear();
        tokio::select! {
            read = stream.read_buf(&mut bytes) => if read? == 0 { return Ok(()) },
            _ = lives.changed() => return Ok(()),
            () = stop.stopped() => return Ok(()),
        }
    }
}

/// What the other broker says to the one that speaks.
enum Heard {
    /// It has heard of all subscriptions up to this version.
    Version(u64),
    /// The link has ended.
    End,
}

/// The frames of the other broker.
struct Frames {
    read: ReadHalf<LinkStream>,
    bytes: Vec<u8>,
    handled: usize,
}

impl Frames {
    /// Returns the next frame. May be dropped at any time: nothing is lost.
    async fn next(&mut self) -> Result<Heard, NoLink> {
        loop {
            let decoded = decode(&self.bytes[self.handled..], FRAME_MAX).map_err(broken)?;
            if let Some((frame, len)) = decoded {
                let heard = match frame {
                    Frame::Heard(version) => Heard::Version(version),
                    Frame::Refused(refusal) => {
                        return Err(barid_peers::HandshakeError::Refused(refusal).into());
                    }
                    _ => return Err(broken(FrameError::Unexpected)),
                };
                self.handled += len;
                return Ok(heard);
            }
            self.bytes.drain(..std::mem::take(&mut self.handled));
            if self.read.read_buf(&mut self.bytes).await? == 0 {
                return Ok(Heard::End);
            }
        }
    }
}

fn broken(error: FrameError) -> NoLink {
    barid_peers::HandshakeError::from(error).into()
}
