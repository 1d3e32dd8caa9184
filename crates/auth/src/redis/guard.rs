//! What a Redis server may send.
//!
//! The parser behind this collects whatever a server declares, without a limit of its own. So each reply is
//! scanned before the parser gets it, and the connection ends if it is no reply of the commands that are used.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::seal::ENTRY_MAX;

/// Maximum length of a line, in bytes: of a number, a length or an error.
const LINE_MAX: usize = 1024;

/// Maximum length of a string, in bytes: that of an entry, and a byte that shows that it is longer.
const STRING_MAX: usize = ENTRY_MAX + 1;

/// Maximum length of a reply, in bytes.
const REPLY_MAX: usize = 2 * STRING_MAX;

/// Maximum number of elements in a list. The longest list is that of the modules of a server.
const ELEMENTS_MAX: usize = 256;

/// Maximum number of lists that contain each other.
const DEPTH_MAX: usize = 6;

/// Number of bytes after which the thread goes on with something else.
const TURN: usize = 32 * 1024;

/// A connection whose incoming bytes are scanned.
pub(super) struct Guard<S> {
    stream: S,
    scan: Scan,
    /// Number of bytes since the stream had none.
    turn: usize,
}

impl<S> Guard<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, scan: Scan::default(), turn: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.turn >= TURN {
            this.turn = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(context, buffer);
        match polled {
            Poll::Ready(Ok(())) => {
                let new = &buffer.filled()[before..];
                this.turn += new.len();
                let scanned = this.scan.feed(new);
                Poll::Ready(
                    scanned.map_err(|reason| io::Error::new(ErrorKind::InvalidData, reason)),
                )
            }
            other => {
                this.turn = 0;
                other
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The state of a scan of RESP3.
#[derive(Debug, Default)]
struct Scan {
    /// The line so far.
    line: Vec<u8>,
    /// Number of bytes that are left of a string, with the end of line after it.
    string: usize,
    /// The lists that are open: the number of elements that each still misses.
    open: Vec<usize>,
    /// Length of the reply so far.
    length: usize,
}

impl Scan {
    fn feed(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
        while let Some(first) = bytes.first() {
            if self.string > 0 {
                let (skipped, rest) = bytes.split_at(bytes.len().min(self.string));
                self.string -= skipped.len();
                bytes = rest;
                self.count(skipped.len())?;
                if self.string == 0 {
                    self.element_ends();
                }
                continue;
            }
            if self.line.len() == LINE_MAX {
                return Err("Redis sends a line that is too long");
            }
            self.line.push(*first);
            bytes = &bytes[1..];
            self.count(1)?;
            if self.line.ends_with(b"\r\n") {
                self.line_ends()?;
            }
        }
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), &'static str> {
        self.length += bytes;
        if self.length > REPLY_MAX {
            return Err("Redis sends a reply that is too long");
        }
        Ok(())
    }

    fn line_ends(&mut self) -> Result<(), &'static str> {
        let line = std::mem::take(&mut self.line);
        match line[0] {
            b'+' | b'-' | b':' | b',' | b'#' | b'_' => self.element_ends(),
            b'$' => match length(&line, STRING_MAX)? {
                None => self.element_ends(),
                Some(length) => self.string = length + 2,
            },
            kind @ (b'*' | b'~' | b'>' | b'%') => {
                let elements = length(&line, ELEMENTS_MAX)?.unwrap_or(0);
                if elements == 0 {
                    self.element_ends();
                } else if self.open.len() == DEPTH_MAX {
                    return Err("Redis sends lists in lists in lists");
                } else {
                    self.open.push(if kind == b'%' { 2 * elements } else { elements });
                }
            }
            _ => return Err("this is no Redis server, or the connection is disturbed"),
        }
        Ok(())
    }

    /// An element has ended, and with it perhaps the lists of which it is the last one.
    fn element_ends(&mut self) {
        while let Some(missing) = self.open.last_mut() {
            *missing -= 1;
            if *missing > 0 {
                return;
            }
            self.open.pop();
        }
        self.length = 0;
    }
}

/// Parses a length. `None`: -1, which stands for an absent value.
fn length(line: &[u8], most: usize) -> Result<Option<usize>, &'static str> {
    let digits = line[1..].strip_suffix(b"\r\n").unwrap_or_default();
    if digits == b"-1" {
        return Ok(None);
    }
    let text = str::from_utf8(digits).unwrap_or_default();
    match text.parse() {
        Ok(length) if length <= most && digits[0].is_ascii_digit() => Ok(Some(length)),
        Ok(_) => Err("Redis sends a string or list that is too long"),
        Err(_) => Err("this is no Redis server, or the connection is disturbed"),
    }
}

#[cfg(test)]
mod tests {
    use redis::aio::MultiplexedConnection;
    use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn scan(bytes: &[u8]) -> Result<Scan, &'static str> {
        let mut scan = Scan::default();
        scan.feed(bytes).map(|()| scan)
    }

    #[test]
    fn replies_of_redis_pass_however_they_are_divided() {
        let replies = b"+OK\r\n$-1\r\n$5\r\na\r\nbc\r\n:-1\r\n*0\r\n*2\r\n$0\r\n\r\n%1\r\n+a\r\n*1\r\n_\r\n>3\r\n\
            $7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n-ERR no\r\n*-1\r\n#t\r\n";
        for size in 1..replies.len() {
            let mut scan = Scan::default();
            replies.chunks(size).for_each(|part| scan.feed(part).unwrap());
            assert!(
                scan.line.is_empty()
                    && scan.open.is_empty()
                    && scan.string == 0
                    && scan.length == 0
            );
        }
    }

    #[test]
    fn what_is_no_reply_or_too_long_is_refused() {
        let many = b"*3\r\n".repeat(7);
        let long = [b"+", &[b'x'; LINE_MAX][..]].concat();
        let long_list =
            [b"*200\r\n".to_vec(), [b"$2000\r\n", &[b'x'; 2002][..]].concat().repeat(100)].concat();
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"\r\n",
            b"$81922\r\n",
            b"$99999999999999999999\r\n",
            b"$-2\r\n",
            b"$+1\r\n",
            b"$\r\n",
            b"$1x\r\n",
            b"*257\r\n",
            b"|1\r\n",
            b"=3\r\n",
            b"!3\r\n",
            &many,
            &long,
            &long_list,
        ] {
            assert!(scan(bytes).is_err(), "{:?}", String::from_utf8_lossy(bytes));
        }
        assert!(scan(b"$81921\r\n").is_ok());
    }

    #[tokio::test]
    async fn a_flood_lets_others_have_their_turn() {
        let (mut server, client) = tokio::io::duplex(1 << 20);
        server.write_all(&b":1\r\n".repeat(200_000)).await.unwrap();
        let mut guard = Guard::new(client);
        let mut buffer = [0; 8192];
        let mut reads = 0;
        std::future::poll_fn(|context| {
            loop {
                let mut buffer = ReadBuf::new(&mut buffer);
                match Pin::new(&mut guard).poll_read(context, &mut buffer) {
                    Poll::Ready(done) => done.unwrap(),
                    Poll::Pending => return Poll::Ready(()),
                }
                reads += 1;
            }
        })
        .await;
        assert_eq!(reads * 8192, TURN);
        assert_eq!(guard.read(&mut buffer).await.unwrap(), 8192);
    }

    /// Changes replies as an enemy, or a disturbed connection, would.
    fn disturb(replies: &mut Vec<u8>) {
        let at = fastrand::usize(..replies.len());
        let signs = b"$*%>~|=!(:_-+#,\r\n019";
        match fastrand::u8(..6) {
            0 => replies.truncate(at),
            1 => replies[at] = fastrand::u8(..),
            2 | 3 => replies[at] = signs[fastrand::usize(..signs.len())],
            4 => drop(
                replies
                    .splice(at..at, b"*2\r\n>1\r\n$9\r\nsubscribe\r\n%1\r\n+a\r\n".iter().copied()),
            ),
            _ => {
                let length = fastrand::usize(1..20);
                let random = std::iter::repeat_with(|| fastrand::u8(..)).take(length);
                drop(replies.splice(at..at, random));
            }
        }
    }

    #[tokio::test]
    async fn no_reply_ends_the_process() {
        let honest = [
            &b"%2\r\n$5\r\nproto\r\n:3\r\n$7\r\nmodules\r\n*1\r\n%1\r\n+a\r\n:1\r\n"[..],
            b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n",
            b"$3\r\nabc\r\n>3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n$0\r\n\r\n+OK\r\n-ERR no\r\n_\r\n",
        ];
        let (mut whole, mut partly) = (0, 0);
        for round in 0..4_000 {
            fastrand::seed(round);
            let (mut server, client) = tokio::io::duplex(1 << 16);
            let mut replies = honest.map(<[u8]>::to_vec);
            if round > 0 {
                disturb(&mut replies[fastrand::usize(..3)]);
            }
            let serving = tokio::spawn(async move {
                for reply in replies {
                    let _ = server.read(&mut [0; 1024]).await;
                    let _ = server.write_all(&reply).await;
                }
                std::future::pending::<()>().await;
            });
            let talk = async {
                let info = RedisConnectionInfo::default()
                    .set_protocol(ProtocolVersion::RESP3)
                    .set_skip_set_lib_name();
                let config = AsyncConnectionConfig::new()
                    .set_push_sender(|_: redis::PushInfo| Ok::<_, std::convert::Infallible>(()));
                let opened =
                    MultiplexedConnection::new_with_config(&info, Guard::new(client), config);
                let (mut connection, driver) = opened.await.ok()?;
                let ask = async {
                    connection.subscribe("c").await.ok()?;
                    let mut commands = redis::pipe();
                    for _ in 0..5 {
                        commands.cmd("PING");
                    }
                    connection.send_packed_commands(&commands, 0, 5).await.ok()
                };
                let mut driver = Box::pin(driver);
                tokio::select! {
                    () = &mut driver => None,
                    replies = ask => replies,
                }
            };
            match tokio::time::timeout(std::time::Duration::from_millis(5), talk).await {
                Ok(Some(replies)) => whole += replies.len() / 5,
                _ => partly += 1,
            }
            serving.abort();
        }
        assert!(whole > 100 && partly > 1_000, "{whole} {partly}");
    }
}
