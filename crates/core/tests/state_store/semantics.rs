//! The behaviour of each command, one rule per test.

use crate::script::check;

#[test]
fn a_key_has_what_was_set_last() {
    check(
        "at 1000
         GET k           => absent
         SET k v         => OK 1000:0 ^1; put k=v; clock 1000:0
         GET k           => =v 1000:0 ^1
         batch
         SET k w         => OK 1000:1 ^2; put k=w; clock 1000:1
         GET k           => =w 1000:1 ^2
         DEL k           => deleted 1000:2 ^2; remove k; clock 1000:2
         DEL k           => nothing ^2
         batch
         GET k           => absent ^2
         GET l           => absent ^2",
    );
}

#[test]
fn a_version_is_greater_than_the_timestamp_and_than_all_before() {
    check(
        "at 1000
         SET k v ts=1000:0:c     => OK 1000:1 ^1; put k=v; clock 1000:1
         SET k v ts=5000:7:c     => OK 5000:8 ^1; put k=v; clock 5000:8
         SET l v ts=1:0:c        => OK 5000:9 ^1; put l=v; clock 5000:9
         DEL k                   => deleted 5000:10 ^1; remove k; clock 5000:10
         at 6000
         SET k v ts=1:0:c        => OK 6000:0 ^1; put k=v; clock 6000:0",
    );
}

#[test]
fn set_needs_a_timestamp_that_is_not_in_the_future() {
    check(
        "at 1000
         SET k v ts=-            => MissingTimestamp
         SET k v ts=1:2          => MalformedTimestamp
         SET k v ts=61001:0:c    => TimestampInFuture
         GET k                   => absent
         SET k v                 => OK 1000:0 ^1; put k=v; clock 1000:0
         SET k w ts=61000:0:c    => OK 61000:1 ^1; put k=w; clock 61000:1
         DEL k ts=nonsense       => deleted 61000:2 ^1; remove k; clock 61000:2",
    );
}

#[test]
fn nx_sets_only_what_is_absent() {
    check(
        "at 1000
         SET k v NX      => OK 1000:0 ^1; put k=v; clock 1000:0
         at 2000
         SET k v NX      => not applied 1000:0 ^1
         DEL k           => deleted 2000:0 ^1; remove k; clock 2000:0
         SET k w NX      => OK 2000:1 ^1; put k=w; clock 2000:1",
    );
}

#[test]
fn nex_sets_what_is_absent_or_equal_and_begins_its_time_anew() {
    check(
        "at 1000
         WATCH 7 lock            => OK
         SET lock me NEX PX=100  => OK 1000:0 ^1; put lock=me until=1100; clock 1000:0; tell 7 lock SET me 1000:0 ^1
         at 1050
         SET lock you NEX PX=100 => not applied 1000:0 ^1
         SET lock me NEX PX=100  => OK 1050:0 ^1; put lock=me until=1150; clock 1050:0; tell 7 lock SET me 1050:0 ^1
         at 1149
         GET lock                => =me 1050:0 ^1
         at 1150
         SET lock you NEX PX=100 => OK 1150:1 ^1; remove lock; clock 1150:0; tell 7 lock DELETE 1150:0 ^1; put lock=you until=1250; clock 1150:1; tell 7 lock SET you 1150:1 ^1",
    );
}

#[test]
fn set_without_px_clears_an_expiry() {
    check(
        "at 1000
         SET k v PX=10   => OK 1000:0 ^1; put k=v until=1010; clock 1000:0
         ALARM           => 1010
         SET k w         => OK 1000:1 ^1; put k=w; clock 1000:1
         ALARM           => -
         at 1010
         EXPIRE          =>
         GET k           => =w 1000:1 ^1",
    );
}

#[test]
fn an_expired_key_is_gone_for_every_command() {
    let expired = "remove k; clock 1010:0";
    for (command, answer) in [
        ("GET k", format!("absent ^1; {expired}")),
        ("DEL k", format!("nothing ^1; {expired}")),
        ("VDEL k v", format!("nothing ^1; {expired}")),
        ("SET k w NX", format!("OK 1010:1 ^1; {expired}; put k=w; clock 1010:1")),
        ("SET k w NX ft=1:0:c", format!("OK 1010:1 ^1; {expired}; put k=w ft=1:0:c; clock 1010:1")),
        ("SCAN *", "^1".into()),
    ] {
        check(&format!(
            "at 1000
             SET k v PX=10 ft=5:0:c      => OK 1000:0 ^1; put k=v ft=5:0:c until=1010; clock 1000:0
             at 1010
             {command}                   => {answer}"
        ));
    }
}

#[test]
fn keys_expire_in_their_order_and_their_watchers_hear_of_it() {
    check(
        "at 1000
         WATCH 7 b       => OK
         SET a v PX=30   => OK 1000:0 ^1; put a=v until=1030; clock 1000:0
         ALARM           => 1030
         SET b v PX=10   => OK 1000:1 ^1; put b=v until=1010; clock 1000:1; tell 7 b SET v 1000:1 ^1
         ALARM           => 1010
         SET c v PX=50   => OK 1000:2 ^1; put c=v until=1050; clock 1000:2
         ALARM           => -
         batch
         at 1040
         EXPIRE          => remove b; clock 1040:0; tell 7 b DELETE 1040:0 ^2; remove a; clock 1040:1
         ALARM           => 1050
         USED            => 1 3 1
         EXPIRE          =>
         ALARM           => 1050",
    );
}

#[test]
fn who_comes_too_early_for_a_key_is_told_to_come_again() {
    check(
        "
        at 1000
        SET a v PX=100 memory       => OK 1000:0
        ALARM                       => 1100
        at 1099
        EXPIRE                      =>
        ALARM                       => 1100
        ALARM                       => -
        at 1100
        EXPIRE                      =>
        GET a                       => absent
        ALARM                       => -
        ",
    );
}

#[test]
fn vdel_deletes_only_the_value_it_names() {
    check(
        "at 1000
         VDEL k v        => nothing
         SET k v         => OK 1000:0 ^1; put k=v; clock 1000:0
         VDEL k w        => not applied 1000:0 ^1
         VDEL k v        => deleted 1000:1 ^1; remove k; clock 1000:1",
    );
}

#[test]
fn a_fencing_token_keeps_out_older_ones() {
    check(
        "at 1000
         SET k a                         => OK 1000:0 ^1; put k=a; clock 1000:0
         SET k b ft=5:0:c                => OK 1000:1 ^1; put k=b ft=5:0:c; clock 1000:1
         batch
         SET k c                         => FencingTokenRequired ^1
         DEL k                           => FencingTokenRequired ^1
         VDEL k b                        => FencingTokenRequired ^1
         SET k c ft=4:9:c                => FencingTokenTooOld ^1
         DEL k ft=4:9:c                  => FencingTokenTooOld ^1
         VDEL k other ft=4:9:c           => FencingTokenTooOld ^1
         SET k c ft=5:0:c                => OK 1000:2 ^2; put k=c ft=5:0:c; clock 1000:2
         SET k d ft=5:0:d                => OK 1000:3 ^2; put k=d ft=5:0:d; clock 1000:3
         GET k                           => =d 1000:3 ^2
         VDEL k d ft=6:0:a               => deleted 1000:4 ^2; remove k; clock 1000:4
         SET k e                         => OK 1000:5 ^2; put k=e; clock 1000:5",
    );
}

#[test]
fn what_is_wrong_with_a_token_is_said_before_anything_else() {
    check(
        "at 1000
         SET k v NX                      => OK 1000:0 ^1; put k=v; clock 1000:0
         SET k w NX ft=junk              => MalformedTimestamp
         SET k w NX ft=61001:0:c         => FencingTokenInFuture
         SET k w NX ft=junk ts=-         => MissingTimestamp
         SET k w NX ft=junk ts=61001:0:c => TimestampInFuture
         DEL other ft=junk               => MalformedTimestamp
         DEL other ft=61001:0:c          => FencingTokenInFuture
         DEL other ft=1:0:c              => nothing",
    );
}

#[test]
fn a_refused_set_changes_nothing() {
    check(
        "at 1000
         WATCH 7 k                       => OK
         SET k v PX=100 ft=5:0:c         => OK 1000:0 ^1; put k=v ft=5:0:c until=1100; clock 1000:0; tell 7 k SET v 1000:0 ^1
         at 1050
         SET k w NX PX=500 ft=9:0:c      => not applied 1000:0 ^1
         SET k w NEX PX=500 ft=9:0:c     => not applied 1000:0 ^1
         SET k v NEX ft=5:0:c            => OK 1050:0 ^1; put k=v ft=5:0:c; clock 1050:0; tell 7 k SET v 1050:0 ^1",
    );
}

#[test]
fn a_quota_of_keys_is_for_new_ones() {
    check(
        "limit keys=1
         at 1000
         SET a v         => OK 1000:0 ^1; put a=v; clock 1000:0
         SET b v         => QuotaExceeded
         SET a w         => OK 1000:1 ^1; put a=w; clock 1000:1
         SET a w NX      => not applied 1000:1 ^1
         USED            => 1 2 0
         DEL a           => deleted 1000:2 ^1; remove a; clock 1000:2
         USED            => 0 0 0
         SET b v         => OK 1000:3 ^1; put b=v; clock 1000:3",
    );
}

#[test]
fn a_quota_of_bytes_counts_keys_values_and_tokens_and_lets_them_shrink() {
    check(
        "limit bytes=140
         at 1000
         SET key 123456789                => OK 1000:0 ^1; put key=123456789; clock 1000:0
         USED                             => 1 12 0
         SET key 1234567890               => QuotaExceeded
         SET key 123456789 ft=1:0:c       => QuotaExceeded
         SET key 12345678 ft=1:0:c        => OK 1000:1 ^1; put key=12345678 ft=1:0:c; clock 1000:1
         limit bytes=130
         SET key 1234567 ft=1:0:c         => OK 1000:2 ^1; put key=1234567 ft=1:0:c; clock 1000:2
         SET key 12345678 ft=1:0:c        => QuotaExceeded
         USED                             => 1 11 0
         limit value=3
         SET v 1234                       => QuotaExceeded
         SET v 123                        => OK 1000:3 ^1; put v=123; clock 1000:3",
    );
}

#[test]
fn a_key_that_is_too_long_is_refused_by_the_quota() {
    let (fits, long) = ("k".repeat(65_000), "k".repeat(65_001));
    check(&format!(
        "at 1000
         SET {fits} v    => OK 1000:0 ^1; put {fits}=v; clock 1000:0
         SET {long} v    => QuotaExceeded
         GET {long}      => absent
         DEL {long}      => nothing
         WATCH 7 {long}  => QuotaExceeded"
    ));
}

#[test]
fn a_store_that_takes_nothing_new_refuses_what_is_to_be_stored() {
    check(
        "at 1000
         SET k v                  => OK 1000:0 ^1; put k=v; clock 1000:0
         SET l v refuses          => QuotaExceeded
         SET k w refuses          => QuotaExceeded
         SET k w memory refuses   => QuotaExceeded
         SET l v memory refuses   => OK 1000:1
         DEL k refuses from=1/2/3 => deleted 1000:2 ^1; remove k; clock 1000:2; note 1/2/3
         SET k v refuses from=1/3/4       => QuotaExceeded
         DUP 1/3/4                => QuotaExceeded
         DEL k refuses from=1/4/5 => nothing ^1; note 1/4/5",
    );
}

#[test]
fn what_is_not_stored_waits_for_nothing() {
    check(
        "at 1000
         WATCH 7 k               => OK
         SET k v memory PX=10    => OK 1000:0; tell 7 k SET v 1000:0
         GET k                   => =v 1000:0
         SET k w memory PX=10    => OK 1000:1; tell 7 k SET w 1000:1
         DEL k memory            => deleted 1000:2; tell 7 k DELETE 1000:2
         GET k                   => absent
         SET k v memory PX=10    => OK 1000:3; tell 7 k SET v 1000:3
         at 1010
         EXPIRE                  => tell 7 k DELETE 1010:0
         SCAN *                  => ",
    );
}

#[test]
fn a_version_ahead_of_the_wall_clock_is_stored_whatever_the_class() {
    check(
        "at 1000
         SET k v memory ts=2000:0:c      => OK 2000:1 ^1; clock 3000:0
         batch
         GET k                           => =v 2000:1 ^1
         SET k w memory                  => OK 2000:2 ^1
         DEL k memory                    => deleted 2000:3 ^1
         SET k w                         => OK 2000:4 ^2; put k=w
         at 2500
         SET j x memory ts=3000:1:c      => OK 3000:2 ^2; clock 4000:0
         at 3001
         SET j x memory                  => OK 3001:0 ^2",
    );
}

#[test]
fn a_scan_waits_for_the_last_change_whatever_is_not_stored() {
    check(
        "at 1000
         SET m v memory ts=2000:0:c      => OK 2000:1 ^1; clock 3000:0
         batch
         SET k v                         => OK 2000:2 ^2; put k=v
         SET m v memory                  => OK 2000:3 ^1
         SCAN *                          => k m ^2",
    );
}

#[test]
fn a_note_ahead_takes_the_clock_no_further_than_a_client_may_be() {
    check(
        "at 1000
         SET k v memory ts=60500:0:c     => OK 60500:1 ^1; clock 61000:0
         SET k v memory ts=61000:5:c     => OK 61000:6 ^1; clock 61000:6",
    );
}

#[test]
fn a_key_once_stored_stays_stored_until_it_is_deleted() {
    check(
        "at 1000
         SET k v memory  => OK 1000:0
         SET k v         => OK 1000:1 ^1; put k=v; clock 1000:1
         batch
         SET k w memory  => OK 1000:2 ^2; put k=w; clock 1000:2
         DEL k memory    => deleted 1000:3 ^2; remove k; clock 1000:3
         batch
         SET k x memory  => OK 1000:4 ^2
         SET k y memory  => OK 1000:5 ^2
         DEL k memory    => deleted 1000:6 ^2",
    );
}

#[test]
fn watchers_are_told_once_each_until_they_stop() {
    check(
        "at 1000
         WATCH 7 k       => OK
         WATCH 7 k       => OK
         WATCH 8 k       => OK
         WATCH 8 l       => OK
         USED            => 0 3 3
         SET k v         => OK 1000:0 ^1; put k=v; clock 1000:0; tell 7,8 k SET v 1000:0 ^1
         SET k v         => OK 1000:1 ^1; put k=v; clock 1000:1; tell 7,8 k SET v 1000:1 ^1
         STOP 7 k        => OK
         STOP 7 k        => nothing
         STOP 7 other    => nothing
         DEL k           => deleted 1000:2 ^1; remove k; clock 1000:2; tell 8 k DELETE 1000:2 ^1
         DEL k           => nothing ^1
         GONE 8 k l x    =>
         USED            => 0 0 0
         SET k v         => OK 1000:3 ^1; put k=v; clock 1000:3",
    );
}

#[test]
fn watching_has_a_quota() {
    check(
        "limit watchers=2
         WATCH 7 k       => OK
         WATCH 7 l       => OK
         WATCH 8 k       => QuotaExceeded
         WATCH 7 k       => OK
         GONE 7 k        =>
         WATCH 8 k       => OK
         USED            => 0 2 2",
    );
}

#[test]
fn keys_that_are_watched_share_the_quota_of_bytes() {
    // Each key and each watch takes 128 of these bytes.
    check(
        "limit bytes=395
         at 1000
         WATCH 7 longer  => OK
         WATCH 8 longer  => OK
         USED            => 0 12 2
         WATCH 7 l       => QuotaExceeded
         WATCH 7 longer  => OK
         SET k v memory  => QuotaExceeded
         STOP 8 longer   => OK
         SET k v memory  => OK 1000:0
         WATCH 8 another => QuotaExceeded
         WATCH 8 x       => OK
         GONE 7 longer   =>
         GONE 8 x        =>
         DEL k           => deleted 1000:1
         USED            => 0 0 0",
    );
}

#[test]
fn a_request_that_comes_again_is_answered_as_before() {
    check(
        "at 1000
         SET k v NX from=1/2/30          => OK 1000:0 ^1; put k=v; clock 1000:0; note 1/2/30
         batch
         SET k w NX from=1/3/31          => not applied 1000:0 ^2; note 1/3/31
         DEL k from=1/4/32               => deleted 1000:1 ^2; remove k; clock 1000:1; note 1/4/32
         DEL k from=1/5/33               => nothing ^2; note 1/5/33
         DEL k from=1/6/34 ft=61001:0:c  => FencingTokenInFuture ^2; note 1/6/34
         SET k w from=1/7/35 ts=-        => MissingTimestamp
         DUP 1/2/30                      => OK 1000:0 ^1
         DUP 1/3/31                      => not applied 1000:0 ^2
         DUP 1/4/32                      => deleted 1000:1 ^2
         DUP 1/5/33                      => nothing ^2
         DUP 1/6/34                      => FencingTokenInFuture ^2
         DUP 1/7/35                      => unknown
         DUP 2/2/30                      => unknown
         DUP 1/2/31                      => unknown
         SET k x from=1/2/36             => OK 1000:2 ^2; put k=x; clock 1000:2; note 1/2/36
         DUP 1/2/30                      => unknown
         FORGET 1                        => unnote 1/3; unnote 1/4; unnote 1/5; unnote 1/6; unnote 1/2
         DUP 1/2/36                      => unknown",
    );
}

#[test]
fn an_answer_is_stored_only_with_key_and_session() {
    check(
        "at 1000
         SET k v from=1/2/3 volatile     => OK 1000:0 ^1; put k=v; clock 1000:0
         DUP 1/2/3                       => OK 1000:0 ^1
         SET m v memory from=1/3/4       => OK 1000:1
         DUP 1/3/4                       => OK 1000:1
         DEL k memory from=1/4/5         => deleted 1000:2 ^1; remove k; clock 1000:2; note 1/4/5
         SET m w memory from=1/4/6       => OK 1000:3; unnote 1/4
         FORGET 1                        =>",
    );
}

#[test]
fn a_scan_gives_keys_in_order_and_says_where_to_go_on() {
    check(
        "at 1000
         SET b v         => OK 1000:0 ^1; put b=v; clock 1000:0
         SET ab v        => OK 1000:1 ^1; put ab=v; clock 1000:1
         SET abc v       => OK 1000:2 ^1; put abc=v; clock 1000:2
         SET ac v        => OK 1000:3 ^1; put ac=v; clock 1000:3
         SCAN *                          => ab abc ac b ^1
         SCAN a*                         => ab abc ac ^1
         SCAN a*c                        => abc ac ^1
         SCAN a?                         => ab ac ^1
         SCAN z*                         => ^1
         SCAN * steps=150               => ab abc more after abc ^1
         SCAN * steps=150 after=abc     => ac b ^1
         SCAN * steps=220               => ab abc ac more after ac ^1
         SCAN *c bytes=3                 => abc more after abc ^1
         SCAN *c bytes=3 after=abc       => ac ^1
         SCAN *c bytes=4 steps=100      => more after ab ^1
         SCAN * bytes=0                  => ab more after ab ^1
         SCAN a* after=b                 => ^1
         SCAN b* after=ab                => b ^1
         SCAN ab after=ab                => ^1",
    );
}

#[test]
fn a_scan_that_costs_too_much_for_one_key_is_refused() {
    let (long, many) = ("a".repeat(1_000), "a".repeat(20));
    check(&format!(
        "at 1000
         SET a v memory                  => OK 1000:0
         SET {long} v memory             => OK 1000:1
         SCAN *{many}?b* steps=20000                => more after a
         SCAN *{many}?b* steps=20000 after=a        => Syntax
         SCAN *{many}?b* steps=30000 after=a        =>
         SCAN *{many}?b* steps=20000 after={long}   =>
         SCAN *{many}b* steps=2000 after=a          =>
         SCAN *{many}?b steps=2000                  =>"
    ));
}
