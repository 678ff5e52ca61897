// The extension that program.py calls to be traced: it calls the function that
// has the probe, and has Python say, from the same call, what its stack is.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

// Functions that stacks are to show are not inlined, and do something after each
// call, lest it become a jump.
#define SHOWN __attribute__((noinline, visibility("hidden")))
#define HERE __asm__ volatile("" ::: "memory")

__attribute__((noinline, visibility("default"))) void probed(void) { HERE; }

static PyObject *note; // called without arguments; takes down Python's own view

// For each C function of call and descend that the thread is in, from the
// outermost: how many Python frames called it.
static __thread int depths[256], in;
static __thread unsigned turn;

static int take_note(void)
{
	PyObject *result = note ? PyObject_CallNoArgs(note) : Py_NewRef(Py_None);

	Py_XDECREF(result);
	return result ? 0 : -1;
}

SHOWN void released(void)
{
	Py_BEGIN_ALLOW_THREADS
	probed();
	Py_END_ALLOW_THREADS
	HERE;
}

SHOWN void held(void)
{
	probed();
	HERE;
}

// Taking a stack down makes frame objects, and brings in memory that nobody has
// touched so far: half of the calls are traced before it.
static PyObject *probe_with(void (*hit)(void))
{
	int first = turn++ & 1;

	if (first && take_note())
		return NULL;
	hit();
	if (!first && take_note())
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *probe(PyObject *self, PyObject *none) { return probe_with(released); }
static PyObject *probe_held(PyObject *self, PyObject *none) { return probe_with(held); }

static PyObject *set_note(PyObject *self, PyObject *f)
{
	Py_XSETREF(note, Py_NewRef(f));
	Py_RETURN_NONE;
}

static int python_depth(void)
{
	PyFrameObject *f = PyEval_GetFrame(), *back;
	int n = 0;

	for (Py_XINCREF(f); f; f = back, n++) {
		back = PyFrame_GetBack(f);
		Py_DECREF(f);
	}
	return n;
}

static PyObject *enter(PyObject *f)
{
	PyObject *result;

	if (in == (int)(sizeof(depths) / sizeof(depths[0])))
		return PyErr_Format(PyExc_RuntimeError, "too many calls");
	depths[in++] = python_depth();
	result = PyObject_CallNoArgs(f);
	in--;
	return result;
}

// call(f) calls f.
SHOWN PyObject *calling(PyObject *f)
{
	PyObject *result = enter(f);

	HERE;
	return result;
}
static PyObject *call(PyObject *self, PyObject *f) { return calling(f); }

// descend(n, f) calls f from n C functions, one in the other.
SHOWN PyObject *descending(int n, PyObject *f)
{
	PyObject *result = n > 1 ? descending(n - 1, f) : enter(f);

	HERE;
	return result;
}
static PyObject *descend(PyObject *self, PyObject *args)
{
	PyObject *f;
	int n;

	return PyArg_ParseTuple(args, "iO", &n, &f) ? descending(n, f) : NULL;
}

static PyObject *get_depths(PyObject *self, PyObject *none)
{
	PyObject *list = PyList_New(0);

	for (int i = 0; list && i < in; i++) {
		PyObject *n = PyLong_FromLong(depths[i]);

		if (!n || PyList_Append(list, n))
			Py_CLEAR(list);
		Py_XDECREF(n);
	}
	return list;
}

struct thread {
	PyObject *f; // NULL: no Python at all
	int ok;
	pid_t tid;
};

SHOWN void *thread_start(void *arg)
{
	struct thread *t = arg;

	t->tid = gettid();
	probed(); // before Python knows the thread
	if (t->f) {
		PyGILState_STATE state = PyGILState_Ensure();
		PyObject *result = PyObject_CallNoArgs(t->f);

		t->ok = result != NULL;
		if (!result)
			PyErr_WriteUnraisable(t->f);
		Py_XDECREF(result);
		PyGILState_Release(state);
	}
	probed(); // Python has forgotten it
	HERE;
	return NULL;
}

// thread(f) calls f in a thread that C made; thread(None) only has the thread.
// It gives the thread's id.
static PyObject *thread(PyObject *self, PyObject *f)
{
	struct thread t = {f == Py_None ? NULL : f, f == Py_None};
	pthread_t handle;
	int err;

	Py_BEGIN_ALLOW_THREADS
	err = pthread_create(&handle, NULL, thread_start, &t);
	if (!err)
		pthread_join(handle, NULL);
	Py_END_ALLOW_THREADS
	if (err || !t.ok)
		return PyErr_Format(PyExc_RuntimeError, "the thread failed");
	return PyLong_FromLong(t.tid);
}

// What follows is for damage: the address of the thread's state, a word of
// memory, and probed() with some words changed for as long as it runs.

static PyObject *thread_state(PyObject *self, PyObject *none)
{
	return PyLong_FromVoidPtr(PyThreadState_Get());
}

// thread_slot(at, size): where in the pthread's own data the thread's state is.
static PyObject *thread_slot(PyObject *self, PyObject *args)
{
	uint64_t state = (uint64_t)PyThreadState_Get(), word;
	unsigned int at, size;

	if (!PyArg_ParseTuple(args, "II", &at, &size))
		return NULL;
	for (uintptr_t p = pthread_self() + at; size >= 8; p += 8, size -= 8) {
		memcpy(&word, (void *)p, sizeof(word));
		if (word == state)
			return PyLong_FromVoidPtr((void *)p);
	}
	return PyErr_Format(PyExc_LookupError, "the thread's state is not there");
}

static PyObject *peek(PyObject *self, PyObject *at)
{
	void *p = PyLong_AsVoidPtr(at);
	uint64_t word;

	if (PyErr_Occurred())
		return NULL;
	memcpy(&word, p, sizeof(word));
	return PyLong_FromUnsignedLongLong(word);
}

// probe_damaged([(address, word), ...])
static PyObject *probe_damaged(PyObject *self, PyObject *list)
{
	enum { MAX = 16 };
	unsigned long long at[MAX], word[MAX], was[MAX];
	Py_ssize_t n = PyList_Size(list);

	if (n < 0 || n > MAX)
		return PyErr_Format(PyExc_ValueError, "not a list of up to %d", MAX);
	for (Py_ssize_t i = 0; i < n; i++)
		if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "KK", &at[i], &word[i]))
			return NULL;
	for (Py_ssize_t i = 0; i < n; i++) {
		memcpy(&was[i], (void *)at[i], 8);
		memcpy((void *)at[i], &word[i], 8);
	}
	held();
	while (n-- > 0)
		memcpy((void *)at[n], &was[n], 8);
	Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
	{"probe", probe, METH_NOARGS, NULL},
	{"probe_held", probe_held, METH_NOARGS, NULL},
	{"set_note", set_note, METH_O, NULL},
	{"call", call, METH_O, NULL},
	{"descend", descend, METH_VARARGS, NULL},
	{"depths", get_depths, METH_NOARGS, NULL},
	{"thread", thread, METH_O, NULL},
	{"thread_state", thread_state, METH_NOARGS, NULL},
	{"thread_slot", thread_slot, METH_VARARGS, NULL},
	{"peek", peek, METH_O, NULL},
	{"probe_damaged", probe_damaged, METH_O, NULL},
	{NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "ttprobe", NULL, -1, methods};
PyMODINIT_FUNC PyInit_ttprobe(void)
{
	PyObject *created = PyModule_Create(&module);

#ifdef Py_GIL_DISABLED
	if (created)
		PyUnstable_Module_SetGIL(created, Py_MOD_GIL_NOT_USED);
#endif
	return created;
}
