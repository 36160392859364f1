#include "workers.h"

#include "sys.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORKERS_FIRST 3u  /* started as soon as there is work for them */
#define WORKERS_MOST 64u  /* further ones only when everything stands still */
#define STALL_MS 20
#define STACK_SIZE (256u * 1024u)

#define INTERRUPT_SIGNAL SIGUSR1

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static struct job *queue_first;
static struct job **queue_last = &queue_first;
static struct job *done_first;
static struct job **done_last = &done_first;
static unsigned threads;
static unsigned idle;
static unsigned waiting;
static unsigned running;
static unsigned finished; /* ever, to see whether something moves */
static bool signalled;    /* the event descriptor is readable */
static int event_fd = -1;

static _Thread_local bool inside;

bool workers_inside(void) { return inside; }

static void interrupted(int number) { (void)number; }

static void *worker(void *nothing) {
    (void)nothing;
    inside = true;
    pid_t self = (pid_t)syscall(SYS_gettid);
    pthread_mutex_lock(&mutex);
    for (;;) {
        while (!queue_first) {
            idle++;
            pthread_cond_wait(&work, &mutex);
            idle--;
        }
        struct job *job = queue_first;
        queue_first = job->next;
        if (!queue_first)
            queue_last = &queue_first;
        waiting--;
        running++;
        atomic_store(&job->thread, self);
        pthread_mutex_unlock(&mutex);
        job->run(job);
        pthread_mutex_lock(&mutex);
        atomic_store(&job->thread, 0);
        running--;
        finished++;
        job->next = NULL;
        *done_last = job;
        done_last = &job->next;
        if (!signalled) {
            signalled = true;
            uint64_t one = 1;
            (void)RETRY(write(event_fd, &one, sizeof one));
        }
    }
    return NULL;
}

int workers_start(void) {
    struct sigaction action = {.sa_handler = interrupted}; /* without SA_RESTART: it is there to interrupt */
    sigaction(INTERRUPT_SIGNAL, &action, NULL);
    event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return event_fd;
}

/* With the mutex held. */
static void add_thread(void) {
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, INTERRUPT_SIGNAL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_SIZE);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    if (pthread_create(&thread, &attributes, worker, NULL) == 0)
        threads++;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void workers_submit(struct job *job) {
    pthread_mutex_lock(&mutex);
    job->next = NULL;
    *queue_last = job;
    queue_last = &job->next;
    waiting++;
    if (idle < waiting && threads < WORKERS_FIRST)
        add_thread();
    if (idle > 0)
        pthread_cond_signal(&work);
    pthread_mutex_unlock(&mutex);
}

bool workers_withdraw(struct job *job) {
    bool found = false;
    pthread_mutex_lock(&mutex);
    for (struct job **link = &queue_first; *link; link = &(*link)->next)
        if (*link == job) {
            *link = job->next;
            if (!*link)
                queue_last = link;
            waiting--;
            found = true;
            break;
        }
    pthread_mutex_unlock(&mutex);
    return found;
}

void workers_cancel(struct job *job) {
    atomic_store(&job->cancelled, true);
    pthread_mutex_lock(&mutex);
    pid_t thread = atomic_load(&job->thread);
    if (thread)
        sys_tgkill(getpid(), thread, INTERRUPT_SIGNAL);
    pthread_mutex_unlock(&mutex);
}

void workers_collect(void) {
    uint64_t count;
    (void)RETRY(read(event_fd, &count, sizeof count));
    pthread_mutex_lock(&mutex);
    signalled = false;
    struct job *job = done_first;
    done_first = NULL;
    done_last = &done_first;
    pthread_mutex_unlock(&mutex);
    while (job) {
        struct job *next = job->next;
        job->done(job);
        job = next;
    }
}

int workers_pressure(void) {
    static unsigned finished_before;
    static int64_t since_ms;
    int again = -1;
    pthread_mutex_lock(&mutex);
    if (waiting && threads < WORKERS_MOST && !idle) {
        int64_t now = monotonic_ms();
        if (finished != finished_before || !since_ms) {
            finished_before = finished;
            since_ms = now;
        } else if (now - since_ms >= STALL_MS) {
            add_thread();
            since_ms = now;
        }
        again = STALL_MS;
    } else {
        since_ms = 0;
    }
    pthread_mutex_unlock(&mutex);
    return again;
}

unsigned workers_waiting(void) {
    pthread_mutex_lock(&mutex);
    unsigned count = waiting;
    pthread_mutex_unlock(&mutex);
    return count;
}

unsigned workers_active(void) {
    pthread_mutex_lock(&mutex);
    unsigned count = waiting + running;
    pthread_mutex_unlock(&mutex);
    return count;
}
