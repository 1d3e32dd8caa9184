//! The context of a trace in a message (W3C Trace Context, `traceparent`).

use data_encoding::HEXLOWER;

/// Name of the property with the context.
pub const TRACEPARENT: &str = "traceparent";

/// The name that older SDKs of Azure give it.
const DIAGNOSTIC_ID: &str = "Diagnostic-Id";

/// Length of the text of version 00.
const LENGTH: usize = 55;

/// Code of an AMQP text or symbol of up to 255 bytes (1.6.20, 1.6.21).
const AMQP_TEXTS: [u8; 2] = [0xA1, 0xA3];

/// The trace that a message belongs to, and the span of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: [u8; 16],
    pub parent: [u8; 8],
}

impl TraceContext {
    /// Reads the context. `None`: it is not valid, or its sender does not record the trace.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        // A later version may continue behind what is known.
        let is_longer = bytes.len() > LENGTH && (bytes[LENGTH] != b'-' || text.starts_with("00"));
        if bytes.len() < LENGTH || is_longer || text.starts_with("ff") {
            return None;
        }
        let hex = |from: usize, to: usize| HEXLOWER.decode(&bytes[from..to]).ok();
        let dashes = [2, 35, 52].iter().all(|place| bytes[*place] == b'-');
        let (_version, flags) = (hex(0, 2)?, hex(53, 55)?);
        let (trace, parent) = (hex(3, 35)?, hex(36, 52)?);
        let is_valid = dashes && trace.iter().any(|b| *b != 0) && parent.iter().any(|b| *b != 0);
        let is_sampled = flags[0] & 1 != 0;
        let context = Self { trace: trace.try_into().ok()?, parent: parent.try_into().ok()? };
        (is_valid && is_sampled).then_some(context)
    }

    /// Finds the context in the bytes of an AMQP message, of which the end may be missing: a name, and a text behind it.
    pub fn find_in_amqp(message: &[u8]) -> Option<Self> {
        [TRACEPARENT, DIAGNOSTIC_ID].iter().find_map(|name| {
            let at = memchr::memmem::find(message, name.as_bytes())? + name.len();
            let (head, text) = (message.get(at..at + 2)?, message.get(at + 2..at + 2 + LENGTH)?);
            let is_text = AMQP_TEXTS.contains(&head[0]) && usize::from(head[1]) == LENGTH;
            is_text.then(|| Self::parse(std::str::from_utf8(text).ok()?)).flatten()
        })
    }

    /// Whether the trace is among this share of all traces. All brokers decide alike, because the id of a trace is random.
    pub fn is_within(&self, ratio: f64) -> bool {
        let mut random = [0; 8];
        random[1..].copy_from_slice(&self.trace[9..]);
        // The last 7 bytes are random (Trace Context Level 2).
        u64::from_be_bytes(random) as f64 / (1_u64 << 56) as f64 <= ratio && ratio > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_sampled_context_is_read() {
        let context = TraceContext::parse(TEXT).unwrap();
        assert_eq!(HEXLOWER.encode(&context.trace), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(HEXLOWER.encode(&context.parent), "00f067aa0ba902b7");
        let later = format!("01{}-what-follows", &TEXT[2..]);
        assert_eq!(TraceContext::parse(&later), Some(context));
    }

    #[test]
    fn others_are_not() {
        let zeros = |from: usize, count: usize| {
            let mut text = TEXT.to_owned();
            text.replace_range(from..from + count, &"0".repeat(count));
            text
        };
        for text in [
            "",
            &TEXT[..54],
            &format!("{TEXT}-x"),
            &format!("01{}x", &TEXT[2..]),
            &TEXT.replace("-01", "-00"),
            &TEXT.to_uppercase(),
            &TEXT.replace("00-4", "ff-4"),
            &TEXT.replace('-', "_"),
            &zeros(3, 32),
            &zeros(36, 16),
            &"é".repeat(28),
        ] {
            assert_eq!(TraceContext::parse(text), None, "{text}");
        }
    }

    #[test]
    fn it_is_found_in_a_message_of_amqp() {
        let context = TraceContext::parse(TEXT);
        for name in [TRACEPARENT, DIAGNOSTIC_ID] {
            let message = [b"\0St\xC1", name.as_bytes(), &[0xA1, 55], TEXT.as_bytes()].concat();
            assert_eq!(TraceContext::find_in_amqp(&message), context);
            for end in 0..message.len() {
                assert_eq!(TraceContext::find_in_amqp(&message[..end]), None);
            }
        }
    }

    #[test]
    fn a_share_of_the_traces_is_taken() {
        let context = |byte| TraceContext { trace: [byte; 16], parent: [1; 8] };
        let within = |ratio: f64| (0..=255).filter(|byte| context(*byte).is_within(ratio)).count();
        assert_eq!([0.0, 0.25, 0.5, 1.0].map(within), [0, 64, 128, 256]);
    }
}
