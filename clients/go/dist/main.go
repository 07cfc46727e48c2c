// Command dist makes the archives that the Go module proxy would make of this client's modules, checks them, and uses each one from a clean
// module: go finds them by a proxy that is a folder. It uploads nothing: a Go module is published by a tag of the repository.
//
//	go run . -into FOLDER -version v0.4.0
//
// It is a module of its own, so that the client does not depend on what it needs.
package main

import (
	"archive/zip"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

// prefix is the folder of the client in its repository, and of its tags.
const prefix = "clients/go"

// needed are the files that each archive must have: what pkg.go.dev shows, and what a licence asks for.
var needed = []string{"go.mod", "README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"}

// An artifact is a module, by its folder below the client's.
type artifact struct {
	folder  string
	foreign []string // modules that its users must not come to depend on
	example string   // a program that takes one lock on the server that is its argument
}

var artifacts = []artifact{
	{".", []string{"rueidis", "otel", "redsync"}, program(`"github.com/redis/go-redis/v9"`,
		`locks := redislock.New(redis.NewClient(&redis.Options{Addr: os.Args[1]}))`)},
	{"rueidisdriver", []string{"otel"}, program(`"github.com/redis-lock/redis-lock/clients/go/rueidisdriver"
	"github.com/redis/rueidis"`, `client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{os.Args[1]}})
	if err != nil {
		panic(err)
	}
	locks := redislock.NewWith(rueidisdriver.New(client))`)},
	{"redislockotel", []string{"rueidis"}, program(`"github.com/redis-lock/redis-lock/clients/go/redislockotel"
	"github.com/redis/go-redis/v9"`, `locks, err := redislock.Open(redis.NewClient(&redis.Options{Addr: os.Args[1]}),
		redislock.WithObserver(redislockotel.New()))
	if err != nil {
		panic(err)
	}`)},
}

func program(imports, locks string) string {
	return `package main

import (
	"fmt"
	"os"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	` + imports + `
)

func main() {
	` + locks + `
	defer locks.Close()
	mutex := locks.NewMutex("dist")
	if err := mutex.Lock(); err != nil {
		panic(err)
	}
	fmt.Println("a lock with a fence:", mutex.Fence() > 0)
	if _, err := mutex.Unlock(); err != nil {
		panic(err)
	}
}
`
}

func main() {
	into := flag.String("into", "", "the folder for the archives")
	version := flag.String("version", "", "the version, as in v0.4.0")
	flag.Parse()
	if err := run(*into, *version); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(into, version string) error {
	into, err := filepath.Abs(into)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(into); err != nil {
		return err
	}
	var paths []string
	for _, a := range artifacts {
		path, err := a.pack(into, version)
		if err != nil {
			return fmt.Errorf("%s: %w", a.folder, err)
		}
		paths = append(paths, path)
	}
	server, err := testserver.Start()
	if err != nil {
		return err
	}
	defer server.Stop()
	for i, a := range artifacts {
		if err := a.use(into, paths[i], version, server.Addr, false); err != nil {
			return fmt.Errorf("%s: %w", a.folder, err)
		}
		if err := a.use(into, paths[i], version, server.Addr, true); err != nil {
			return fmt.Errorf("%s, from the source: %w", a.folder, err)
		}
	}
	fmt.Printf("\nNothing was uploaded. To publish, the repository would get these tags, and the module proxy would fetch them:\n")
	for _, a := range artifacts {
		fmt.Printf("  %s\n", filepath.ToSlash(filepath.Join(prefix, a.folder, version)))
	}
	return nil
}

// pack writes one module as a proxy serves it, checks it, and lists what is in it. It returns the module's path.
func (a artifact) pack(into, version string) (path string, err error) {
	folder := filepath.Join("..", a.folder)
	gomod, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return "", err
	}
	parsed, err := modfile.Parse("go.mod", gomod, nil)
	if err != nil {
		return "", err
	}
	path = parsed.Module.Mod.Path
	for _, required := range parsed.Require {
		if strings.HasPrefix(required.Mod.Path, "github.com/redis-lock/") && required.Mod.Version != version {
			return "", fmt.Errorf("it requires %s, and this is %s", required.Mod, version)
		}
	}
	checked, err := modzip.CheckDir(folder)
	if err = errors.Join(err, checked.Err()); err != nil {
		return "", err
	}
	for _, file := range needed {
		if _, err := os.Stat(filepath.Join(folder, file)); err != nil {
			return "", err
		}
	}
	escaped, err := module.EscapePath(path)
	if err != nil {
		return "", err
	}
	served := filepath.Join(into, "proxy", filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(served, 0o755); err != nil {
		return "", err
	}
	archive := filepath.Join(served, version+".zip")
	file, err := os.Create(archive)
	if err != nil {
		return "", err
	}
	identity := module.Version{Path: path, Version: version}
	if err := errors.Join(modzip.CreateFromDir(file, identity, folder), file.Close()); err != nil {
		return "", err
	}
	if checked, err := modzip.CheckZip(identity, archive); errors.Join(err, checked.Err()) != nil {
		return "", errors.Join(err, checked.Err())
	}
	info := fmt.Sprintf(`{"Version":%q,"Time":%q}`, version, time.Now().UTC().Format(time.RFC3339))
	if err := errors.Join(
		os.WriteFile(filepath.Join(served, version+".mod"), gomod, 0o644),
		os.WriteFile(filepath.Join(served, version+".info"), []byte(info), 0o644),
		os.WriteFile(filepath.Join(served, "list"), []byte(version+"\n"), 0o644),
	); err != nil {
		return "", err
	}
	return path, list(archive, path, version)
}

func list(archive, path, version string) error {
	reader, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer reader.Close()
	fmt.Printf("%s@%s: %d files\n", path, version, len(reader.File))
	for _, file := range reader.File {
		fmt.Printf("  %7d %s\n", file.UncompressedSize64, strings.TrimPrefix(file.Name, path+"@"+version+"/"))
	}
	return nil
}

// use takes a lock from a clean module, with a module cache of its own: by the archives, or by the folders of the source.
func (a artifact) use(into string, path, version, addr string, source bool) error {
	work, err := os.MkdirTemp("", "redis-lock-dist-")
	if err != nil {
		return err
	}
	from := "an archive"
	steps := [][]string{{"mod", "init", "example.com/app"}}
	if source {
		from = "the source"
		for _, folder := range []string{".", a.folder} { // The client, and this module if it is another.
			absolute, err := filepath.Abs(filepath.Join("..", folder))
			if err != nil {
				return err
			}
			path := strings.TrimSuffix(strings.TrimSuffix(path, a.folder), "/")
			if folder != "." {
				path += "/" + folder
			}
			steps = append(steps, []string{"mod", "edit", "-require=" + path + "@" + version, "-replace=" + path + "=" + absolute})
		}
	} else {
		steps = append(steps, []string{"get", path + "@" + version})
	}
	steps = append(steps, []string{"mod", "tidy"})
	run := func(name string, args ...string) (string, error) {
		cmd := exec.Command(name, args...)
		cmd.Dir = filepath.Join(work, "app")
		cmd.Env = append(os.Environ(), "GOMODCACHE="+filepath.Join(work, "cache"), "GOFLAGS=-mod=mod -modcacherw", "GOWORK=off", "GONOSUMDB=github.com/redis-lock",
			"GOPROXY="+strings.Join([]string{"file://" + into + "/proxy", "file://" + goEnv("GOMODCACHE") + "/cache/download", goEnv("GOPROXY")}, ","))
		var trouble strings.Builder // and what go downloads
		cmd.Stderr = &trouble
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, &trouble)
		}
		return string(out), nil
	}
	defer os.RemoveAll(work)
	if err := os.MkdirAll(filepath.Join(work, "app"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "app", "main.go"), []byte(a.example), 0o644); err != nil {
		return err
	}
	for _, step := range steps {
		if _, err := run("go", step...); err != nil {
			return err
		}
	}
	said, err := run("go", "run", ".", addr)
	if err != nil {
		return err
	}
	if said != "a lock with a fence: true\n" {
		return fmt.Errorf("it said %q", said)
	}
	modules, err := run("go", "list", "-m", "all")
	if err != nil {
		return err
	}
	for _, foreign := range a.foreign {
		if strings.Contains(modules, "/"+foreign+" ") {
			return fmt.Errorf("its users would depend on %s:\n%s", foreign, modules)
		}
	}
	fmt.Printf("\n%s@%s from %s, in a clean module: %s", path, version, from, said)
	return nil
}

func goEnv(name string) string {
	out, _ := exec.Command("go", "env", name).Output()
	return strings.TrimSpace(string(out))
}
