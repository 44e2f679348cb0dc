----------------------------- MODULE EmbedLease -----------------------------
(***************************************************************************)
(* The lease protocol of the queue: one entity, the jobs of its versions,  *)
(* workers that die, pause and repeat themselves, and everybody else who   *)
(* may touch a job meanwhile. Every action is one transaction of the store *)
(* and names the module that it stands for. What must hold is said in      *)
(* Promises.tla.                                                           *)
(*                                                                         *)
(* Left out, because it changes nothing about who may write what:          *)
(*  - clocks: a lease is just expired or not; a back-off is over at once;  *)
(*  - batches: a worker holds one job (EmbedSuspects.tla has batches);     *)
(*  - the provider: every attempt may succeed or fail in any way;          *)
(*  - a CRITICAL error (given back with refund): the same as a release;    *)
(*  - recover_owner and release_owner: for the job and for a worker that   *)
(*    lives on they are a pause followed by a recovery, or a release;      *)
(*  - priorities, lanes, pausing, the breaker: they only choose and delay; *)
(*  - several entities and models: their jobs share nothing but workers.   *)
(*                                                                         *)
(* Whatever disturbs is counted in ``left``, so that the model is finite;  *)
(* what the queue itself does is not.                                      *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Workers,
    LastVersion,   \* versions of the entity, and so jobs, are 1..LastVersion
    MaxAttempts,
    Changes,       \* how often the entity changes
    Faults,        \* crashes, lost answers, releases, cancellations, operator's retries: their sum
    Pauses,        \* how often a lease expires while its worker lives
    Poison,        \* TRUE: the job of version 1 kills every worker that loads it
    Paths          \* how changes arrive: a subset of {"enqueue", "trigger"}

CONSTANTS          \* The guards. Taken away one by one they make the mutants.
    Identity,      \* what makes a lease: "fence", "owner", "status" or "id"
    SameOwner,     \* TRUE: all workers have one name, as a worker and its restarted twin do
    Unlocked,      \* who reads before the lock: of {"worker", "recovery", "operator"}
    ChecksVersion,
    ChecksText,
    LocksEntity,   \* a completion waits for whoever is changing the entity
    IsAtomic,      \* vector and status are written by one transaction
    Receipt,       \* what a repeated completion is recognised by: "fence", "status" or "none"
    Refunds,       \* a release gives the attempt back
    CountsAtLease, \* an attempt is counted when it begins, not when it is reported as failed
    NotesMoves,    \* a leased job remembers that another text was asked for: moved_fence
    Recovers,      \* expired leases are taken away
    Scans          \* the scan compares entities with their vectors

VARIABLES
    entity,   \* [version, text, live]; texts are numbers, a newer one is larger
    vector,   \* [version, text] on the entity, or Nothing
    job,      \* by version
    worker,   \* what each worker believes to hold: [job, fence, text, wrote]
    client,   \* the entity that an open transaction will leave behind, or Nothing
    seen,     \* what somebody has read before the lock, or Nothing
    left,     \* the disturbances still to come
    spent,    \* ghost: attempts of a job that nothing gave back, since it was opened
    tried,    \* ghost: the last text of a job that a worker took up since it was opened, or 0
    applied   \* ghost: the fences under which a vector of the job was written

vars == <<entity, vector, job, worker, client, seen, left, spent, tried, applied>>
ghosts == <<spent, tried, applied>>

Jobs == 1..LastVersion
Nothing == [nothing |-> TRUE]
Unknown == 0
Nobody == "nobody"
Terminal == {"completed", "failed", "cancelled"}
Idle == [job |-> 0, fence |-> 0, text |-> Unknown, wrote |-> FALSE]
Processes == Workers \cup {"recovery", "operator"}

(* domain/lifecycle.py, MOVES; a test compares the two tables. *)
Moves == {
    <<"pending", "processing">>,   \* lease
    <<"processing", "completed">>, \* complete
    <<"processing", "pending">>,   \* retry, release, recover
    <<"processing", "failed">>,    \* exhaust
    <<"pending", "cancelled">>,    \* cancel
    <<"processing", "cancelled">>, \* cancel
    <<"completed", "pending">>,    \* revive
    <<"failed", "pending">>,       \* retry_failed, revive
    <<"cancelled", "pending">>     \* revive
}

NoJob == [
    status |-> "none", attempts |-> 0, fence |-> 0, owner |-> Nobody,
    expired |-> FALSE, expiries |-> 0, hash |-> Unknown, moved |-> FALSE, by |-> Nobody
]
NewJob(hash) == [NoJob EXCEPT !.status = "pending", !.hash = hash]

Init ==
    /\ entity = [version |-> 1, text |-> 1, live |-> TRUE]
    /\ vector = Nothing
    /\ \E via \in Paths :
        job = [v \in Jobs |->
            IF v = 1 THEN NewJob(IF via = "enqueue" THEN 1 ELSE Unknown) ELSE NoJob]
    /\ worker = [w \in Workers |-> Idle]
    /\ client = Nothing
    /\ seen = [p \in Processes |-> Nothing]
    /\ left = [changes |-> Changes, faults |-> Faults, pauses |-> Pauses]
    /\ spent = [v \in Jobs |-> 0]
    /\ tried = [v \in Jobs |-> Unknown]
    /\ applied = [v \in Jobs |-> <<>>]

-----------------------------------------------------------------------------
(* store/transactions.py, lock_jobs: lock, then read, then decide. Who is    *)
(* in Unlocked decides by what it has read in an earlier step.               *)

Role(p) == IF p \in Workers THEN "worker" ELSE p
IsUnlocked(p) == Role(p) \in Unlocked

Look(p, v) ==
    /\ IsUnlocked(p)
    /\ seen[p] = Nothing
    /\ IF p \in Workers THEN worker[p].job \in {0, v} ELSE TRUE
    /\ seen' = [seen EXCEPT ![p] = [at |-> v, job |-> job[v], entity |-> entity]]
    /\ UNCHANGED <<entity, vector, job, worker, client, left, ghosts>>

MayAct(p, v) == IsUnlocked(p) => (seen[p] # Nothing /\ seen[p].at = v)
JobOf(p, v) == IF IsUnlocked(p) THEN seen[p].job ELSE job[v]
EntityOf(p) == IF IsUnlocked(p) THEN seen[p].entity ELSE entity
Act(p) == seen' = [seen EXCEPT ![p] = Nothing]

Spend(what) == left[what] > 0 /\ left' = [left EXCEPT ![what] = @ - 1]

(* store/records.py, is_held *)
Owner(w) == IF SameOwner THEN "twin" ELSE w
IsHeld(j, w) ==
    CASE Identity = "id" -> TRUE
      [] Identity = "status" -> j.status = "processing"
      [] Identity = "owner" -> j.status = "processing" /\ j.owner = Owner(w)
      [] OTHER -> j.status = "processing" /\ j.owner = Owner(w) /\ j.fence = worker[w].fence

(* The truth about a lease, whatever the guards say. *)
Holds(w, v) == worker[w].job = v /\ worker[w].fence = job[v].fence

(* store/moves.py: what each move writes; ``j`` is the node, ``read`` what was read of it. *)
Unowned(j) == [j EXCEPT !.owner = Nobody, !.expired = FALSE, !.moved = FALSE]
BackToPending(j, read, refund) ==
    [Unowned(j) EXCEPT !.status = "pending", !.attempts = read.attempts - refund]
Expired(j, read) == [j EXCEPT !.expiries = read.expiries + 1]
Ended(j, status) == [Unowned(j) EXCEPT !.status = status]
Cancelled(j, by) == [Ended(j, "cancelled") EXCEPT !.by = by]
Reopened(j, hash) ==
    [j EXCEPT !.status = "pending", !.attempts = 0, !.expiries = 0, !.hash = hash, !.by = Nobody]
Refund == IF Refunds /\ CountsAtLease THEN 1 ELSE 0

Set(v, new) == job' = [job EXCEPT ![v] = new]
Drop(w) == worker' = [worker EXCEPT ![w] = Idle]

(* The answer arrives, or it is lost and the worker does not know that it was applied. *)
Answer(w) ==
    \/ Drop(w) /\ UNCHANGED left
    \/ Spend("faults") /\ UNCHANGED worker

NewAttempts(v) == spent' = [spent EXCEPT ![v] = 0] /\ tried' = [tried EXCEPT ![v] = Unknown]
CountSpent(v) == spent' = [spent EXCEPT ![v] = @ + 1] /\ UNCHANGED tried

-----------------------------------------------------------------------------
(* store/lease.py. The mutex of the queue and the lock of the job make it  *)
(* one step. There is no look at max_attempts: a pending job has one left.   *)

Lease(w, v) ==
    /\ worker[w] = Idle
    /\ MayAct(w, v)
    /\ JobOf(w, v).status = "pending"
    /\ LET read == JobOf(w, v)
           charge == IF CountsAtLease THEN 1 ELSE 0 IN
        /\ Set(v, [job[v] EXCEPT
                !.status = "processing", !.attempts = read.attempts + charge,
                !.fence = read.fence + 1, !.owner = Owner(w), !.expired = FALSE])
        /\ worker' = [worker EXCEPT ![w] =
                [job |-> v, fence |-> read.fence + 1, text |-> Unknown, wrote |-> FALSE]]
    /\ Act(w)
    /\ UNCHANGED <<entity, vector, client, left, ghosts>>

(* store/job_store.py, heartbeat. Whoever has lost the lease learns it here. *)
Heartbeat(w) ==
    /\ worker[w] # Idle
    /\ LET v == worker[w].job IN
        /\ MayAct(w, v)
        /\ IF IsHeld(JobOf(w, v), w)
           THEN job[v].expired /\ Set(v, [job[v] EXCEPT !.expired = FALSE]) /\ UNCHANGED worker
           ELSE Drop(w) /\ UNCHANGED job
    /\ Act(w)
    /\ UNCHANGED <<entity, vector, client, left, ghosts>>

Kills(w) == Poison /\ worker[w].job = 1 /\ worker[w].text # Unknown

(* store/load.py. The read of a text that goes on needs no lock. *)
Load(w) ==
    /\ worker[w] # Idle
    /\ worker[w].text = Unknown
    /\ LET v == worker[w].job
           read == JobOf(w, v)
           now == EntityOf(w) IN
        /\ MayAct(w, v)
        /\ IF ~IsHeld(read, w)
           THEN Drop(w) /\ UNCHANGED <<job, left, tried>>
           ELSE IF now.live /\ now.version = v
           THEN /\ worker' = [worker EXCEPT ![w].text = now.text]
                /\ tried' = [tried EXCEPT ![v] = now.text]
                /\ UNCHANGED <<job, left>>
           ELSE Set(v, Cancelled(job[v], "queue")) /\ Answer(w) /\ UNCHANGED tried
    /\ Act(w)
    /\ UNCHANGED <<entity, vector, client, spent, applied>>

(* store/complete.py, _judge *)
Judgement(w, read, now) ==
    LET lease == worker[w] IN
    IF ~IsHeld(read, w)
    THEN IF /\ read.status = "completed"
            /\ \/ Receipt = "status"
               \/ Receipt = "fence" /\ read.fence = lease.fence
         THEN "already" ELSE "fenced"
    ELSE IF ~now.live THEN "gone"
    ELSE IF ChecksVersion /\ now.version # lease.job THEN "superseded"
    ELSE IF ChecksText /\ now.text # lease.text THEN "moved"
    ELSE "completed"

CanLockEntity == (LocksEntity /\ entity.live) => client = Nothing

WriteVector(w) ==
    /\ vector' = [version |-> worker[w].job, text |-> worker[w].text]
    /\ applied' = [applied EXCEPT ![worker[w].job] = Append(@, worker[w].fence)]

Complete(w) ==
    /\ worker[w].text # Unknown /\ ~Kills(w)
    /\ CanLockEntity
    /\ LET v == worker[w].job
           read == JobOf(w, v)
           outcome == Judgement(w, read, EntityOf(w)) IN
        /\ MayAct(w, v)
        /\ CASE outcome \in {"already", "fenced"} ->
                    Drop(w) /\ UNCHANGED <<vector, job, left, applied>>
             [] outcome \in {"gone", "superseded"} ->
                    Set(v, Cancelled(job[v], "queue")) /\ Answer(w) /\ UNCHANGED <<vector, applied>>
             [] outcome = "moved" ->
                    Set(v, BackToPending(job[v], read, Refund)) /\ Answer(w)
                    /\ UNCHANGED <<vector, applied>>
             [] IsAtomic ->
                    /\ Set(v, [Ended(job[v], "completed") EXCEPT !.hash = worker[w].text])
                    /\ WriteVector(w)
                    /\ Answer(w)
             [] ~IsAtomic /\ ~worker[w].wrote ->
                    /\ WriteVector(w)
                    /\ worker' = [worker EXCEPT ![w].wrote = TRUE]
                    /\ UNCHANGED <<job, left>>
             [] OTHER ->
                    /\ Set(v, [Ended(job[v], "completed") EXCEPT !.hash = worker[w].text])
                    /\ Answer(w)
                    /\ UNCHANGED <<vector, applied>>
    /\ Act(w)
    /\ UNCHANGED <<entity, client, spent, tried>>

(* store/fail.py, and after_failure of domain/lifecycle.py *)
Fail(w, category) ==
    /\ worker[w].text # Unknown /\ ~Kills(w)
    /\ LET v == worker[w].job
           read == JobOf(w, v)
           text == worker[w].text
           attempts == read.attempts + (IF CountsAtLease THEN 0 ELSE 1)
           counted == [job[v] EXCEPT !.attempts = attempts]
           gives_up == category = "PERMANENT" \/ attempts >= MaxAttempts
           is_other_text == read.hash # Unknown /\ read.hash # text IN
        /\ MayAct(w, v)
        /\ IF ~IsHeld(read, w)
           THEN Drop(w) /\ UNCHANGED <<job, left, spent, tried>>
           ELSE /\ IF gives_up /\ is_other_text
                   THEN /\ Set(v, [BackToPending(job[v], read, Refund) EXCEPT !.hash = text])
                        /\ UNCHANGED <<spent, tried>>
                   ELSE /\ CountSpent(v)
                        /\ IF gives_up
                           THEN Set(v, [Ended(counted, "failed") EXCEPT !.hash = text])
                           ELSE Set(v, BackToPending(job[v], counted, 0))
                /\ Answer(w)
    /\ Act(w)
    /\ UNCHANGED <<entity, vector, client, applied>>

(* store/job_store.py, release: on every early exit of a worker. *)
Release(w) ==
    /\ worker[w] # Idle
    /\ LET v == worker[w].job
           read == JobOf(w, v) IN
        /\ MayAct(w, v)
        /\ IsHeld(read, w)
        /\ Set(v, BackToPending(job[v], read, Refund))
        /\ Spend("faults")
        /\ \/ Drop(w)
           \/ left.faults > 1 /\ UNCHANGED worker
    /\ Act(w)
    /\ UNCHANGED <<entity, vector, client, ghosts>>

(* kill -9: by chance, or by a poison job, which does it to everybody who has loaded it. *)
Crash(w) ==
    /\ worker[w] # Idle
    /\ IF Kills(w) THEN UNCHANGED left ELSE Spend("faults")
    /\ tried' = [tried EXCEPT ![worker[w].job] =
            IF ~Holds(w, worker[w].job) THEN @
            ELSE IF worker[w].text = Unknown THEN entity.text ELSE worker[w].text]
    /\ Drop(w)
    /\ Act(w)
    /\ UNCHANGED <<entity, vector, job, client, spent, applied>>

-----------------------------------------------------------------------------
(* Time. A lease expires when its worker is dead, or paused for so long.     *)

Expire(v) ==
    /\ job[v].status = "processing" /\ ~job[v].expired
    /\ Set(v, [job[v] EXCEPT !.expired = TRUE])
    /\ \/ (\A w \in Workers : ~Holds(w, v)) /\ UNCHANGED left
       \/ Spend("pauses")
    /\ UNCHANGED <<entity, vector, worker, client, seen, ghosts>>

(* store/recover.py, and after_expiry of domain/lifecycle.py *)
Recover(v) ==
    /\ Recovers
    /\ MayAct("recovery", v)
    /\ LET read == JobOf("recovery", v) IN
        /\ read.status = "processing" /\ read.expired
        /\ IF read.attempts < MaxAttempts
           THEN Set(v, Expired(BackToPending(job[v], read, 0), read)) /\ CountSpent(v)
           ELSE IF read.moved \/ (read.expiries = 0 /\ MaxAttempts > 1)
           THEN Set(v, Expired(BackToPending(job[v], read, 1), read)) /\ UNCHANGED <<spent, tried>>
           ELSE Set(v, Expired(Ended(job[v], "failed"), read)) /\ CountSpent(v)
    /\ Act("recovery")
    /\ UNCHANGED <<entity, vector, worker, client, left, applied>>

-----------------------------------------------------------------------------
(* store/queue_admin.py, cancel and retry_failed *)

Cancel(v) ==
    /\ MayAct("operator", v)
    /\ JobOf("operator", v).status \in {"pending", "processing"}
    /\ Set(v, Cancelled(job[v], "operator"))
    /\ Spend("faults")
    /\ Act("operator")
    /\ UNCHANGED <<entity, vector, worker, client, ghosts>>

RetryFailed(v) ==
    /\ MayAct("operator", v)
    /\ JobOf("operator", v).status = "failed"
    /\ Set(v, Reopened(job[v], JobOf("operator", v).hash))
    /\ NewAttempts(v)
    /\ Spend("faults")
    /\ Act("operator")
    /\ UNCHANGED <<entity, vector, worker, client, applied>>

-----------------------------------------------------------------------------
(* Changes of the entity; its job commits together with it.                  *)
(* store/enqueue.py and the trigger of store/cypher/trigger.py.           *)

NewEntities ==
    LET next == entity.text + 1 IN
    IF ~entity.live
    THEN {[entity EXCEPT !.live = TRUE, !.text = next]}
    ELSE {[entity EXCEPT !.text = next]} \cup
        (IF entity.version = LastVersion THEN {} ELSE
            {[entity EXCEPT !.version = @ + 1],
             [entity EXCEPT !.version = @ + 1, !.text = next]})

(* domain/lifecycle.py, on_enqueue, for a job that has ended *)
IsRevived(j, text, is_forced) ==
    \/ is_forced
    \/ j.status = "cancelled" /\ j.by = "queue"
    \/ j.hash # Unknown /\ j.hash # text

Superseded(jobs, v) ==
    [u \in Jobs |->
        IF u < v /\ jobs[u].status = "pending" THEN Cancelled(jobs[u], "queue") ELSE jobs[u]]

(* Another text is asked for; whoever works on the job may have the old one. *)
Asked(j, text) ==
    [j EXCEPT !.hash = text, !.moved = NotesMoves /\ j.status = "processing"]

(* Jobs that are left alone are not locked, so they may move until the client commits. *)
IsLeftAlone(new, via) ==
    LET j == job[new.version] IN
    \/ j.status = "pending"
    \/ j.status = "processing" /\ (via = "trigger" \/ j.hash = new.text)

(* A neighbour whose name is in the text is called otherwise: nobody asks for anything. A job *)
(* that the scan puts off for it is one that is pending, and waits: time is none of the model. *)
ChangeOfNeighbour ==
    /\ entity.live
    /\ entity' = [entity EXCEPT !.text = @ + 1]
    /\ UNCHANGED <<job, client, spent, tried>>

ChangeOfEntity(via) ==
    \E new \in NewEntities :
        LET v == new.version
            j == job[v]
            hash == IF via = "enqueue" THEN new.text ELSE Unknown
            is_revived == via = "trigger" \/ IsRevived(j, new.text, FALSE)
            is_new == j.status = "none" \/ (j.status \in Terminal /\ is_revived) IN
        IF IsLeftAlone(new, via)
        THEN client' = new /\ UNCHANGED <<entity, job, spent, tried>>
        ELSE /\ entity' = new
             /\ client' = Nothing
             /\ IF is_new
                THEN /\ job' = [(IF via = "enqueue" THEN Superseded(job, v) ELSE job) EXCEPT
                            ![v] = IF j.status = "none" THEN NewJob(hash) ELSE Reopened(j, hash)]
                     /\ NewAttempts(v)
                ELSE Set(v, Asked(j, new.text)) /\ UNCHANGED <<spent, tried>>

Change(via) ==
    /\ client = Nothing
    /\ Spend("changes")
    /\ IF via = "neighbour" THEN ChangeOfNeighbour ELSE ChangeOfEntity(via)
    /\ UNCHANGED <<vector, worker, seen, applied>>

Commit ==
    /\ client # Nothing
    /\ entity' = client
    /\ client' = Nothing
    /\ UNCHANGED <<vector, job, worker, seen, left, ghosts>>

Delete ==
    /\ client = Nothing
    /\ entity.live
    /\ Spend("changes")
    /\ entity' = [entity EXCEPT !.live = FALSE]
    /\ vector' = Nothing
    /\ UNCHANGED <<job, worker, client, seen, ghosts>>

(* store/scan.py: what a scan does about an entity whose vector does not fit. *)
Fits == vector = [version |-> entity.version, text |-> entity.text]
Scan ==
    /\ Scans /\ client = Nothing /\ entity.live /\ ~Fits
    /\ LET v == entity.version
           j == job[v] IN
        IF j.status \in Terminal /\ IsRevived(j, entity.text, j.status = "completed")
        THEN Set(v, Reopened(j, entity.text)) /\ NewAttempts(v)
        ELSE /\ j.hash # entity.text
             /\ j.status \in Terminal \cup {"processing"}
             /\ Set(v, Asked(j, entity.text))
             /\ UNCHANGED <<spent, tried>>
    /\ UNCHANGED <<entity, vector, worker, client, seen, left, applied>>

-----------------------------------------------------------------------------

Work(w) ==
    \/ \E v \in Jobs : Lease(w, v)
    \/ Load(w)
    \/ Complete(w)
    \/ \E category \in {"TRANSIENT", "PERMANENT"} : Fail(w, category)
    \/ Kills(w) /\ Crash(w)

(* What goes on by itself; everything else disturbs. *)
Progress ==
    \/ \E w \in Workers : Work(w)
    \/ \E v \in Jobs : Expire(v) /\ UNCHANGED left
    \/ \E v \in Jobs : Recover(v)
    \/ Commit
    \/ Scan

Next ==
    \/ \E w \in Workers : Work(w) \/ Heartbeat(w) \/ Release(w) \/ Crash(w)
    \/ \E v \in Jobs : Expire(v) \/ Recover(v) \/ Cancel(v) \/ RetryFailed(v)
    \/ \E via \in Paths : Change(via)
    \/ Commit \/ Delete \/ Scan
    \/ \E p \in Processes, v \in Jobs : Look(p, v)

Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ WF_vars(Progress)
=============================================================================
