use super::read::{number, text};
use super::{Malformed, check, code};

/// The number of a described value's first descriptor, and the value behind it.
pub(crate) fn described(bytes: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    match bytes {
        [code::DESCRIBED, code::ULONG_8, code, value @ ..] => Ok((u64::from(*code), value)),
        [code::DESCRIBED, rest @ ..] => {
            let (descriptor, value) = rest.split_at(check::length(rest)?);
            Ok((code_of(descriptor)?, value))
        }
        _ => Err(Malformed("value: not described")),
    }
}

/// The number that stands for a descriptor; those with a name that is unknown here are all 2^64 - 1.
fn code_of(descriptor: &[u8]) -> Result<u64, Malformed> {
    if let Some(number) = number(descriptor) {
        return Ok(number);
    }
    Ok(match text(descriptor)? {
        "amqp:open:list" => 0x10,
        "amqp:begin:list" => 0x11,
        "amqp:attach:list" => 0x12,
        "amqp:flow:list" => 0x13,
        "amqp:transfer:list" => 0x14,
        "amqp:disposition:list" => 0x15,
        "amqp:detach:list" => 0x16,
        "amqp:end:list" => 0x17,
        "amqp:close:list" => 0x18,
        "amqp:error:list" => 0x1D,
        "amqp:received:list" => 0x23,
        "amqp:accepted:list" => 0x24,
        "amqp:rejected:list" => 0x25,
        "amqp:released:list" => 0x26,
        "amqp:modified:list" => 0x27,
        "amqp:source:list" => 0x28,
        "amqp:target:list" => 0x29,
        "amqp:coordinator:list" => 0x30,
        "amqp:declared:list" => 0x33,
        "amqp:transactional-state:list" => 0x34,
        "amqp:sasl-mechanisms:list" => 0x40,
        "amqp:sasl-init:list" => 0x41,
        "amqp:sasl-challenge:list" => 0x42,
        "amqp:sasl-response:list" => 0x43,
        "amqp:sasl-outcome:list" => 0x44,
        _ => u64::MAX,
    })
}
