use super::{Malformed, ValueRef, code};

/// Returns the code of a described value's first descriptor, and the value behind it.
#[inline]
pub(crate) fn described(bytes: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    match bytes {
        [code::DESCRIBED, code::SMALL_ULONG, number, value @ ..] => Ok((u64::from(*number), value)),
        [code::DESCRIBED, rest @ ..] => {
            let (descriptor, value) = ValueRef::read(rest)?;
            Ok((number_of(descriptor), value))
        }
        _ => Err(Malformed::Descriptor),
    }
}

/// Returns the code of a descriptor; 2^64 - 1 for an unknown name.
#[cold]
fn number_of(descriptor: ValueRef<'_>) -> u64 {
    if let ValueRef::Ulong(number) = descriptor {
        return number;
    }
    match descriptor.text().unwrap_or_default() {
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
        "amqp:header:list" => 0x70,
        "amqp:delivery-annotations:map" => 0x71,
        "amqp:message-annotations:map" => 0x72,
        "amqp:properties:list" => 0x73,
        "amqp:application-properties:map" => 0x74,
        "amqp:data:binary" => 0x75,
        "amqp:amqp-sequence:list" => 0x76,
        "amqp:amqp-value:*" => 0x77,
        "amqp:footer:map" => 0x78,
        _ => u64::MAX,
    }
}
