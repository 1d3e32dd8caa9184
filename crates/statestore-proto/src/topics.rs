//! The topics of requests and notifications.

/// The topic that requests are published to. It must match exactly: case matters, and wildcards do
/// not match it.
pub const INVOKE: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

/// Prefix of the topics of all notifications. A response topic is invalid if it begins with this
/// prefix, with or without a slash behind it, or if it is [`INVOKE`].
pub const RESERVED: &str = "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8";

const NOTIFY: &str = "/command/notify/";

/// Returns the topic on which the client is notified of changes of `key`. Client identifier and key
/// are written in upper-case hexadecimal digits.
///
/// A topic has at most 65,535 bytes, so a key of more than about 32,600 bytes has no valid topic.
/// The returned topic is then too long, which the caller has to check.
pub fn notify_topic(client_id: &str, key: &[u8]) -> String {
    let mut topic = notify_prefix(client_id, 2 * key.len());
    push_hex(&mut topic, key);
    topic
}

/// Returns the topic filter to which a client subscribes to be notified of all keys that it
/// watches.
pub fn notify_filter(client_id: &str) -> String {
    let mut filter = notify_prefix(client_id, 1);
    filter.push('+');
    filter
}

/// Returns the key in the topic of a notification, or `None` for any other topic.
pub fn key_of(topic: &str) -> Option<Vec<u8>> {
    let rest = topic.strip_prefix(RESERVED)?.strip_prefix('/')?;
    let (client_id, rest) = rest.split_once('/')?;
    let key = rest.strip_prefix(&NOTIFY[1..])?;
    unhex(client_id)?;
    unhex(key).filter(|key| !key.is_empty())
}

fn notify_prefix(client_id: &str, more: usize) -> String {
    let len = RESERVED.len() + 1 + 2 * client_id.len() + NOTIFY.len() + more;
    let mut topic = String::with_capacity(len);
    topic.push_str(RESERVED);
    topic.push('/');
    push_hex(&mut topic, client_id.as_bytes());
    topic.push_str(NOTIFY);
    topic
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// Reverses [`push_hex`]. Lower-case digits are not accepted.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(value(*high)? << 4 | value(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/\
                           636C69656E742D696431/command/notify/534F4D454B4559";

    #[test]
    fn the_example_of_the_protocol() {
        assert_eq!(notify_topic("client-id1", b"SOMEKEY"), EXAMPLE);
        assert_eq!(key_of(EXAMPLE).as_deref(), Some(&b"SOMEKEY"[..]));
        assert_eq!(
            notify_filter("client-id1"),
            EXAMPLE.strip_suffix("534F4D454B4559").unwrap().to_owned() + "+"
        );
    }

    #[test]
    fn every_byte_comes_back() {
        let key: Vec<u8> = (0..=255).collect();
        assert_eq!(key_of(&notify_topic("Zürich", &key)), Some(key));
    }

    #[test]
    fn other_topics_have_no_key() {
        for topic in [
            "",
            INVOKE,
            RESERVED,
            &EXAMPLE.to_lowercase(),
            &EXAMPLE.replace("534F", "534f"),
            &EXAMPLE.replace("636C", "636c"),
            &EXAMPLE[..EXAMPLE.len() - 1],
            &EXAMPLE.replace("534F4D454B4559", ""),
            &EXAMPLE.replace("notify", "notice"),
            &format!("{EXAMPLE}/"),
            &notify_filter("client-id1"),
            &EXAMPLE.replace("08E2B32A0FE8/", "08E2B32A0FE8"),
        ] {
            assert_eq!(key_of(topic), None, "{topic}");
        }
    }
}
