//! Prepared statements and their results.

use std::sync::Arc;

use super::Error;
use super::packet::{Fields, Packets, is_end, put_number};
use crate::remote::printable;

/// Maximum number of parameters of a statement.
const PARAMETERS_MAX: u16 = 16;

/// Maximum number of columns of a result.
pub(super) const COLUMNS_MAX: u16 = 64;

/// Commands.
const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;

/// Number of the type of parameters: texts of any length.
const VAR_STRING: u8 = 0xfd;

/// A statement that a connection has prepared.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) sql: Arc<str>,
    id: u32,
    parameters: u16,
}

/// A row of a result: the names of the columns, and their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in super::super) struct Row(Vec<(Arc<str>, Value)>);

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) enum Value {
    /// SQL NULL.
    Null,
    /// An integer.
    Integer(i128),
    /// A text, bytes, JSON, or a time as a text.
    Bytes(Vec<u8>),
    /// A value of another type, such as a floating-point number.
    Other,
}

impl Row {
    /// Returns the value of a column, whose name is compared without regard to case, as in SQL.
    pub(in super::super) fn take(&mut self, column: &str) -> Option<Value> {
        let at = self.0.iter().position(|(name, _)| name.eq_ignore_ascii_case(column))?;
        Some(self.0.swap_remove(at).1)
    }

    #[cfg(test)]
    pub(in super::super) fn new(columns: &[(&str, Value)]) -> Self {
        Self(columns.iter().map(|(name, value)| (Arc::from(*name), value.clone())).collect())
    }
}

/// Prepares a statement.
pub(super) async fn prepare(
    packets: &mut Packets,
    sql: &Arc<str>,
    answer_max: usize,
) -> Result<Statement, Error> {
    let mut command = vec![PREPARE];
    command.extend_from_slice(sql.as_bytes());
    packets.command(&command, answer_max).await?;
    let packet = packets.receive().await?;
    let mut fields = Fields(&packet);
    if fields.u8()? != 0 {
        return Err(Error::Malformed("a statement was not prepared"));
    }
    let id = fields.u32()?;
    let (columns, parameters) = (fields.u16()?, fields.u16()?);
    if columns > COLUMNS_MAX || parameters > PARAMETERS_MAX {
        return Err(Error::TooLarge("the columns or parameters of the statement"));
    }
    for count in [parameters, columns].into_iter().filter(|count| *count > 0) {
        for _ in 0..count {
            packets.receive().await?;
        }
        packets.receive_end().await?;
    }
    Ok(Statement { sql: Arc::clone(sql), id, parameters })
}

/// Executes a statement. Returns its rows, and whether these are all: there may be more than `rows_max`.
pub(super) async fn execute(
    packets: &mut Packets,
    statement: &Statement,
    parameters: &[&str],
    rows_max: usize,
    answer_max: usize,
) -> Result<(Vec<Row>, bool), Error> {
    packets.command(&statement.execution(parameters)?, answer_max).await?;
    let packet = packets.receive().await?;
    let columns = match packet.first() {
        Some(0x00 | 0xfb) | None => {
            return Err(Error::Refused("the query returns no rows: it is no SELECT".into()));
        }
        _ => Fields(&packet).number()?,
    };
    if columns > COLUMNS_MAX.into() {
        return Err(Error::TooLarge("the columns of the query"));
    }
    let mut definitions = Vec::new();
    for _ in 0..columns {
        definitions.push(Column::parse(&packets.receive().await?)?);
    }
    packets.receive_end().await?;
    let mut rows = Vec::new();
    loop {
        let packet = packets.receive().await?;
        if is_end(&packet) {
            return Ok((rows, true));
        }
        if rows.len() == rows_max {
            return Ok((rows, false));
        }
        rows.push(row(&packet, &definitions)?);
    }
}

impl Statement {
    fn execution(&self, parameters: &[&str]) -> Result<Vec<u8>, Error> {
        if parameters.len() != usize::from(self.parameters) {
            return Err(Error::Refused(
                format!(
                    "the query has {} `?`, and `parameters` has {}",
                    self.parameters,
                    parameters.len()
                )
                .into(),
            ));
        }
        let mut command = vec![EXECUTE];
        command.extend_from_slice(&self.id.to_le_bytes());
        command.extend_from_slice(&[0, 1, 0, 0, 0]);
        if !parameters.is_empty() {
            // No parameter is NULL, and their types follow.
            command.extend(std::iter::repeat_n(0, parameters.len().div_ceil(8)));
            command.push(1);
            command.extend(parameters.iter().flat_map(|_| [VAR_STRING, 0]));
            for parameter in parameters {
                put_number(&mut command, parameter.len());
                command.extend_from_slice(parameter.as_bytes());
            }
        }
        Ok(command)
    }
}

/// The definition of a column.
#[derive(Debug)]
struct Column {
    name: Arc<str>,
    kind: u8,
    is_unsigned: bool,
}

impl Column {
    fn parse(packet: &[u8]) -> Result<Self, Error> {
        let mut fields = Fields(packet);
        for _ in 0..4 {
            fields.bytes()?;
        }
        let name = printable(fields.bytes()?).into();
        fields.bytes()?;
        fields.number()?;
        fields.take(6)?;
        let kind = fields.u8()?;
        let is_unsigned = fields.u16()? & 0x20 != 0;
        Ok(Self { name, kind, is_unsigned })
    }
}

fn row(packet: &[u8], columns: &[Column]) -> Result<Row, Error> {
    let mut fields = Fields(packet);
    if fields.u8()? != 0 {
        return Err(Error::Malformed("a row begins with an unknown byte"));
    }
    let nulls = fields.take((columns.len() + 2).div_ceil(8))?;
    let mut values = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        let bit = at + 2;
        let is_null = nulls[bit / 8] >> (bit % 8) & 1 == 1;
        let value = if is_null { Value::Null } else { value(&mut fields, column)? };
        values.push((Arc::clone(&column.name), value));
    }
    match fields.0 {
        [] => Ok(Row(values)),
        _ => Err(Error::Malformed("a row is too long")),
    }
}

fn value(fields: &mut Fields<'_>, column: &Column) -> Result<Value, Error> {
    let bits = match column.kind {
        // TINYINT; SMALLINT and YEAR; INT and MEDIUMINT; BIGINT.
        1 => 8,
        2 | 13 => 16,
        3 | 9 => 32,
        8 => 64,
        // FLOAT and DOUBLE.
        4 | 5 => {
            fields.take(if column.kind == 4 { 4 } else { 8 })?;
            return Ok(Value::Other);
        }
        // DATE, DATETIME and TIMESTAMP.
        7 | 10 | 12 => {
            let length = usize::from(fields.u8()?);
            return time(fields.take(length)?).map(|text| Value::Bytes(text.into_bytes()));
        }
        // TIME.
        11 => {
            let length = usize::from(fields.u8()?);
            fields.take(length)?;
            return Ok(Value::Other);
        }
        // NULL.
        6 => return Ok(Value::Null),
        // BIT: a number with the first byte in front.
        16 => {
            let bytes = fields.bytes()?;
            let number = bytes.iter().take(8).fold(0, |sum, byte| sum << 8 | i128::from(*byte));
            return Ok(Value::Integer(number));
        }
        // DECIMAL, texts, bytes, ENUM, SET, JSON: with their length in front.
        0 | 15 | 245..=254 => return fields.bytes().map(|bytes| Value::Bytes(bytes.to_vec())),
        _ => return Err(Error::Malformed("a column has an unknown type")),
    };
    let mut whole = [0; 8];
    let bytes = fields.take(bits / 8)?;
    whole[..bytes.len()].copy_from_slice(bytes);
    let number = i128::from(u64::from_le_bytes(whole));
    let is_negative = !column.is_unsigned && number >> (bits - 1) & 1 == 1;
    Ok(Value::Integer(if is_negative { number - (1 << bits) } else { number }))
}

/// Returns a point in time as MySQL writes it, always with microseconds.
fn time(bytes: &[u8]) -> Result<String, Error> {
    let mut fields = Fields(bytes);
    let (year, month, day) = match bytes.len() {
        0 => (0, 0, 0),
        _ => (fields.u16()?, fields.u8()?, fields.u8()?),
    };
    let (hour, minute, second) = match bytes.len() {
        0 | 4 => (0, 0, 0),
        _ => (fields.u8()?, fields.u8()?, fields.u8()?),
    };
    let micros = match bytes.len() {
        0 | 4 | 7 => 0,
        _ => fields.u32()?,
    };
    Ok(format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(kind: u8, is_unsigned: bool) -> Column {
        Column { name: "c".into(), kind, is_unsigned }
    }

    fn read(kind: u8, is_unsigned: bool, bytes: &[u8]) -> Result<Value, Error> {
        let packet = [&[0, 0], bytes].concat();
        row(&packet, &[column(kind, is_unsigned)]).map(|mut row| row.take("C").unwrap())
    }

    #[test]
    fn values_are_read_by_their_type() {
        let int = Value::Integer;
        let text = |text: &str| Value::Bytes(text.into());
        for (kind, is_unsigned, bytes, expected) in [
            (1, false, &[1][..], int(1)),
            (1, false, &[0xff], int(-1)),
            (1, true, &[0xff], int(255)),
            (2, false, &[0, 0x80], int(-32_768)),
            (3, true, &[1, 0, 0, 0x80], int(0x8000_0001)),
            (8, true, &[0xff; 8], int(u64::MAX.into())),
            (8, false, &[0xff; 8], int(-1)),
            (16, true, &[1, 1], int(1)),
            (5, false, &[0; 8], Value::Other),
            (253, false, b"\x03abc", text("abc")),
            (245, false, b"\x02{}", text("{}")),
            (7, false, &[0], text("0000-00-00 00:00:00.000000")),
            (7, false, &[7, 0xea, 7, 11, 30, 1, 2, 3], text("2026-11-30 01:02:03.000000")),
            (
                7,
                false,
                &[11, 0xea, 7, 11, 30, 1, 2, 3, 7, 0, 0, 0],
                text("2026-11-30 01:02:03.000007"),
            ),
        ] {
            assert_eq!(read(kind, is_unsigned, bytes).unwrap(), expected, "{kind} {bytes:?}");
        }
        for (kind, bytes) in [
            (8, &[1, 2][..]),
            (253, b"\x04abc"),
            (7, &[5, 1]),
            (7, &[2, 1, 1]),
            (99, &[]),
            (1, &[1, 2]),
        ] {
            assert!(read(kind, false, bytes).is_err(), "{kind} {bytes:?}");
        }
        let null = row(&[0, 4], &[column(253, false)]).unwrap().take("c");
        assert_eq!(null, Some(Value::Null));
        assert!(
            row(&[0], &[column(253, false)]).is_err()
                && row(&[7, 0, 0], &[column(253, false)]).is_err()
        );
    }

    #[test]
    fn parameters_are_bound_and_counted() {
        let statement = Statement { sql: "".into(), id: 7, parameters: 2 };
        let command = statement.execution(&["a'; --", "b"]).unwrap();
        assert_eq!(command, b"\x17\x07\0\0\0\0\x01\0\0\0\0\x01\xfd\0\xfd\0\x06a'; --\x01b");
        let error = statement.execution(&["a"]).unwrap_err().to_string();
        assert_eq!(error, "the query has 2 `?`, and `parameters` has 1");
    }
}
