//! What the back ends that ask a server have in common: its address, TLS, and what happens while it does not
//! answer.

pub(crate) mod breaker;
pub(crate) mod look_up;
pub(crate) mod rarely;
pub(crate) mod stream;
pub(crate) mod url;

/// Maximum length of a server's message that is logged, in characters.
const MESSAGE_MAX: usize = 200;

/// Makes a text of a server fit for the log: without control characters, and shortened.
pub(crate) fn printable(text: &[u8]) -> Box<str> {
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * MESSAGE_MAX)]);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MESSAGE_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_server_fit_into_one_line() {
        let text = format!("no\r\n\u{1b}[31m{}", "ä".repeat(1000));
        let shown = printable(text.as_bytes());
        assert_eq!(shown.chars().count(), MESSAGE_MAX);
        assert!(shown.starts_with("no   [31mää") && !shown.contains('\n'));
        assert_eq!(&*printable(b"\xff"), "\u{fffd}");
    }
}
