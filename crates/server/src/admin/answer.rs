//! Errors of the admin API: a status, and `{"error": "a sentence"}`.

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// The error with which a request is answered.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    sentence: String,
}

/// The body of an error.
#[derive(Debug, Serialize, ToSchema)]
pub struct Error {
    /// A sentence that says what is wrong, and often what to do.
    error: String,
}

/// A response in JSON, or an error.
pub type Answer<T> = Result<Json<T>, Refusal>;

impl Refusal {
    /// An error with any status.
    pub fn of(status: StatusCode, sentence: impl Into<String>) -> Self {
        Self { status, sentence: sentence.into() }
    }

    /// 403: the request is not allowed, no matter who sends it.
    pub fn forbidden(sentence: impl Into<String>) -> Self {
        Self::of(StatusCode::FORBIDDEN, sentence)
    }

    /// Returns the sentence.
    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// 404: the target of the request does not exist.
    pub fn not_found(sentence: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, sentence: sentence.into() }
    }

    /// 400: the request is malformed.
    pub fn bad_request(sentence: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, sentence: sentence.into() }
    }

    /// 409: the present state does not allow the request.
    pub fn conflict(sentence: impl Into<String>) -> Self {
        Self { status: StatusCode::CONFLICT, sentence: sentence.into() }
    }

    /// 412: the target was to be created only if it does not exist (`If-None-Match: *`), and it exists.
    pub fn exists(sentence: impl Into<String>) -> Self {
        Self { status: StatusCode::PRECONDITION_FAILED, sentence: sentence.into() }
    }

    /// 503: the request may succeed later.
    pub fn unavailable(sentence: impl Into<String>) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, sentence: sentence.into() }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(Error { error: self.sentence })).into_response()
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

/// Returns the error for a change that was made and is not durable: the broker stops, or its disk is full or
/// broken.
pub fn not_durable(consequence: &str) -> Refusal {
    let sentence = "the change was made but is not durable, because the broker is stopping or its disk \
                    is full or broken";
    Refusal::unavailable(format!("{sentence}: {consequence}"))
}

/// The response for every path that does not exist.
pub async fn no_such_path(uri: Uri) -> Refusal {
    Refusal::not_found(format!("no such path: {}; GET / lists all paths", uri.path()))
}

/// The response for every method that a path does not support.
pub async fn no_such_method(method: Method, uri: Uri) -> Refusal {
    Refusal {
        status: StatusCode::METHOD_NOT_ALLOWED,
        sentence: format!("{} does not support {method}", uri.path()),
    }
}
