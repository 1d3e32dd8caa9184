//! What is answered when something is not: a status, and `{"error": "a sentence"}`.

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Why a request is not answered as it wished.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    sentence: String,
}

/// An answer in JSON, or none.
pub type Answer<T> = Result<Json<T>, Refusal>;

impl Refusal {
    /// For any other reason.
    pub fn of(status: StatusCode, sentence: impl Into<String>) -> Self {
        Self { status, sentence: sentence.into() }
    }

    /// It is not answered, whoever asks.
    pub fn forbidden(sentence: impl Into<String>) -> Self {
        Self::of(StatusCode::FORBIDDEN, sentence)
    }

    /// The status.
    #[cfg(test)]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// What was asked for does not exist.
    pub fn not_found(sentence: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, sentence: sentence.into() }
    }

    /// The question makes no sense.
    pub fn bad_request(sentence: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, sentence: sentence.into() }
    }

    /// What there is does not allow it.
    pub fn conflict(sentence: impl Into<String>) -> Self {
        Self { status: StatusCode::CONFLICT, sentence: sentence.into() }
    }

    /// It was to be made only if it is not there (`If-None-Match: *`), and it is.
    pub fn exists(sentence: impl Into<String>) -> Self {
        Self { status: StatusCode::PRECONDITION_FAILED, sentence: sentence.into() }
    }

    /// It may be answered later.
    pub fn unavailable(sentence: impl Into<String>) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, sentence: sentence.into() }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(json!({ "error": self.sentence }))).into_response()
    }
}

impl From<PathRejection> for Refusal {
    fn from(rejection: PathRejection) -> Self {
        Self { status: rejection.status(), sentence: rejection.body_text() }
    }
}

impl From<QueryRejection> for Refusal {
    fn from(rejection: QueryRejection) -> Self {
        Self { status: rejection.status(), sentence: rejection.body_text() }
    }
}

/// For what was done, and is not durable: the broker stops, or its disk takes nothing.
pub fn not_durable(consequence: &str) -> Refusal {
    let sentence = "the broker stops, or its disk is full or broken";
    Refusal::unavailable(format!("{sentence}: it was done, and {consequence}"))
}

/// For every path that is not served.
pub async fn no_such_path(uri: Uri) -> Refusal {
    Refusal::not_found(format!("there is no {} here; GET / lists what there is", uri.path()))
}

/// For every path that is served, but not in this way.
pub async fn no_such_method(method: Method, uri: Uri) -> Refusal {
    Refusal {
        status: StatusCode::METHOD_NOT_ALLOWED,
        sentence: format!("{method} cannot be done to {}", uri.path()),
    }
}
