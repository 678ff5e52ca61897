// A stand-in for the free-threaded CPython 3.14: what ttmem reads of one, made of the structures in its headers. Two
// threads call probed() below three functions. The second thread executes copies of their code, as it does there.
//
// Argument: the file to which it writes what the stacks are, as program.py does. It prints "ready" and waits for a
// line, so that it can be attached to.
#define Py_BUILD_CORE 1
#define Py_GIL_DISABLED 1
#include <Python.h>
#include <internal/pycore_debug_offsets.h>
#include <internal/pycore_interpframe.h>
#include <internal/pycore_runtime_structs.h>

#include <pthread.h>
#include <unistd.h>

#define HERE __asm__ volatile("" ::: "memory")

enum { THREADS = 2, DEPTH = 3, LINES = 5, CALLS = 100 };

_PyRuntimeState _PyRuntime = {.debug_offsets = _Py_DebugOffsets_INIT(_Py_Debug_Cookie)};
const unsigned long Py_Version = PY_VERSION_HEX;

static void code_dealloc(PyObject *code) { HERE; }

PyTypeObject PyCode_Type = {.tp_dealloc = code_dealloc};
PyTypeObject PyUnicode_Type = {.tp_flags = Py_TPFLAGS_UNICODE_SUBCLASS};
PyTypeObject PyBytes_Type = {.tp_flags = Py_TPFLAGS_BYTES_SUBCLASS};

__attribute__((noinline)) void *PyThread_tss_get(Py_tss_t *key) { return pthread_getspecific(key->_key); }
PyThreadState *PyGILState_GetThisThreadState(void) { return PyThread_tss_get(&_PyRuntime.autoTSSkey); }

__attribute__((noinline)) void probed(void) { HERE; }

PyObject *_PyEval_EvalFrameDefault(PyThreadState *state, struct _PyInterpreterFrame *frame, int thrown)
{
	state->current_frame = frame;
	probed();
	HERE;
	return NULL;
}

static PyObject *text(const char *s)
{
	PyASCIIObject *o = calloc(1, sizeof(*o) + strlen(s) + 1);

	o->ob_base.ob_type = &PyUnicode_Type;
	o->length = strlen(s);
	o->state.interned = 3;
	o->state.kind = 1;
	o->state.compact = o->state.ascii = 1;
	strcpy((char *)(o + 1), s);
	return (PyObject *)o;
}

// Returns a function's code, with one instruction on each line, and copies of it.
static PyCodeObject *code(const char *name, int line)
{
	PyCodeObject *c = calloc(1, sizeof(*c) + 2 * LINES);
	PyBytesObject *table = calloc(1, sizeof(*table) + 2 * LINES);
	_PyCodeArray *copies = calloc(1, sizeof(*copies) + THREADS * sizeof(char *));

	c->ob_base.ob_base.ob_type = &PyCode_Type;
	c->ob_base.ob_size = LINES;
	c->co_name = c->co_qualname = text(name);
	c->co_filename = text("standin.py");
	c->co_firstlineno = line;
	table->ob_base.ob_base.ob_type = &PyBytes_Type;
	table->ob_base.ob_size = 2 * LINES;
	for (int i = 0; i < LINES; i++) { // one code unit without columns, a line further
		table->ob_sval[2 * i] = (char)(0x80 | 13 << 3);
		table->ob_sval[2 * i + 1] = i ? 1 << 1 : 0;
	}
	c->co_linetable = (PyObject *)table;
	c->co_tlbc = copies;
	copies->size = THREADS;
	copies->entries[0] = c->co_code_adaptive;
	for (int i = 1; i < THREADS; i++)
		copies->entries[i] = calloc(LINES, 2);
	return c;
}

static PyCodeObject *codes[DEPTH];
static const char *names[DEPTH] = {"innermost", "inner", "outer"};
static FILE *out;
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

static void *run(void *arg)
{
	int n = (long)arg;
	PyThreadState state = {0};
	_PyInterpreterFrame frames[DEPTH + 1] = {0}, *entry = &frames[DEPTH];

	pthread_setspecific(_PyRuntime.autoTSSkey._key, &state);
	for (int i = 0; i < DEPTH; i++) {
		frames[i].f_executable.bits = (uintptr_t)codes[i] | 1;
		frames[i].previous = i + 1 < DEPTH ? &frames[i + 1] : entry;
		frames[i].tlbc_index = n;
	}
	entry->owner = FRAME_OWNED_BY_INTERPRETER;
	for (int call = 0; call < CALLS; call++) {
		pthread_mutex_lock(&writing);
		fprintf(out, "{\"kind\": \"standin\", \"tid\": %d, \"depths\": [], \"frames\": [", gettid());
		for (int i = 0; i < DEPTH; i++) {
			int line = (call + i + n) % LINES;

			frames[i].instr_ptr = (_Py_CODEUNIT *)codes[i]->co_tlbc->entries[n] + line;
			fprintf(out, "%s[\"%s\", \"%s\", \"standin.py\", %d]", i ? ", " : "", names[i], names[i],
				codes[i]->co_firstlineno + line);
		}
		fprintf(out, "]}\n");
		pthread_mutex_unlock(&writing);
		_PyEval_EvalFrameDefault(&state, frames, 0);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	pthread_key_t key;

	if (pthread_key_create(&key, NULL))
		return 1;
	_PyRuntime.autoTSSkey._key = key;
	_PyRuntime.autoTSSkey._is_initialized = 1;
	for (int i = 0; i < DEPTH; i++)
		codes[i] = code(names[i], 10 * (i + 1));
	puts("ready");
	fflush(stdout);
	getchar();
	out = fopen(argv[argc - 1], "w");
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, run, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return fclose(out);
}
