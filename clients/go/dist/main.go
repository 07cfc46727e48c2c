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
	"log"
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
	log.SetFlags(log.Lshortfile)
	into := flag.String("into", "", "the folder for the archives")
	version := flag.String("version", "", "the version, as in v0.4.0")
	flag.Parse()
	folder := ok(filepath.Abs(*into))
	check(os.RemoveAll(folder))
	var paths []string
	for _, a := range artifacts {
		paths = append(paths, a.pack(folder, *version))
	}
	server := ok(testserver.Start())
	defer server.Stop()
	for i, a := range artifacts {
		a.use(folder, paths[i], *version, server.Addr, false)
		a.use(folder, paths[i], *version, server.Addr, true)
	}
	fmt.Printf("\nNothing was uploaded. To publish, the repository would get these tags, and the module proxy would fetch them:\n")
	for _, a := range artifacts {
		fmt.Printf("  %s\n", filepath.ToSlash(filepath.Join(prefix, a.folder, *version)))
	}
}

// check ends the program at an error. The server ends with it.
func check(err error) {
	if err != nil {
		_ = log.Output(3, err.Error())
		os.Exit(1)
	}
}

func ok[T any](value T, err error) T {
	check(err)
	return value
}

// pack writes one module as a proxy serves it, checks it, and lists what is in it. It returns the module's path.
func (a artifact) pack(into, version string) string {
	folder := filepath.Join("..", a.folder)
	gomod := ok(os.ReadFile(filepath.Join(folder, "go.mod")))
	parsed := ok(modfile.Parse("go.mod", gomod, nil))
	path := parsed.Module.Mod.Path
	for _, required := range parsed.Require {
		if strings.HasPrefix(required.Mod.Path, "github.com/redis-lock/") && required.Mod.Version != version {
			check(fmt.Errorf("%s requires %s, and this is %s", a.folder, required.Mod, version))
		}
	}
	check(ok(modzip.CheckDir(folder)).Err())
	for _, file := range needed {
		ok(os.Stat(filepath.Join(folder, file)))
	}
	served := filepath.Join(into, "proxy", filepath.FromSlash(ok(module.EscapePath(path))), "@v")
	check(os.MkdirAll(served, 0o755))
	archive := filepath.Join(served, version+".zip")
	file := ok(os.Create(archive))
	identity := module.Version{Path: path, Version: version}
	check(errors.Join(modzip.CreateFromDir(file, identity, folder), file.Close()))
	check(ok(modzip.CheckZip(identity, archive)).Err())
	info := fmt.Sprintf(`{"Version":%q,"Time":%q}`, version, time.Now().UTC().Format(time.RFC3339))
	for name, content := range map[string]string{version + ".mod": string(gomod), version + ".info": info, "list": version + "\n"} {
		check(os.WriteFile(filepath.Join(served, name), []byte(content), 0o644))
	}
	reader := ok(zip.OpenReader(archive))
	defer reader.Close()
	fmt.Printf("%s@%s: %d files\n", path, version, len(reader.File))
	for _, file := range reader.File {
		fmt.Printf("  %7d %s\n", file.UncompressedSize64, strings.TrimPrefix(file.Name, path+"@"+version+"/"))
	}
	return path
}

// use takes a lock from a clean module, with a module cache of its own: by the archives, or by the folders of the source.
func (a artifact) use(into string, path, version, addr string, source bool) {
	work := ok(os.MkdirTemp("", "redis-lock-dist-"))
	defer os.RemoveAll(work)
	app := filepath.Join(work, "app")
	check(os.MkdirAll(app, 0o755))
	check(os.WriteFile(filepath.Join(app, "main.go"), []byte(a.example), 0o644))
	run := func(args ...string) string {
		cmd := exec.Command("go", args...)
		cmd.Dir = app
		cmd.Env = append(os.Environ(), "GOMODCACHE="+filepath.Join(work, "cache"), "GOFLAGS=-mod=mod -modcacherw", "GOWORK=off", "GONOSUMDB=github.com/redis-lock",
			"GOPROXY="+strings.Join([]string{"file://" + into + "/proxy", "file://" + goEnv("GOMODCACHE") + "/cache/download", goEnv("GOPROXY")}, ","))
		var trouble strings.Builder // and what go downloads
		cmd.Stderr = &trouble
		out, err := cmd.Output()
		if err != nil {
			check(fmt.Errorf("go %s: %w\n%s%s", strings.Join(args, " "), err, out, &trouble))
		}
		return string(out)
	}
	run("mod", "init", "example.com/app")
	from := "an archive"
	if source {
		from = "the source"
		for _, folder := range []string{".", a.folder} { // The client, and this module if it is another.
			path := strings.TrimSuffix(strings.TrimSuffix(path, a.folder), "/")
			if folder != "." {
				path += "/" + folder
			}
			run("mod", "edit", "-require="+path+"@"+version, "-replace="+path+"="+ok(filepath.Abs(filepath.Join("..", folder))))
		}
	} else {
		run("get", path+"@"+version)
	}
	run("mod", "tidy")
	said := run("run", ".", addr)
	if said != "a lock with a fence: true\n" {
		check(fmt.Errorf("it said %q", said))
	}
	modules := run("list", "-m", "all")
	for _, foreign := range a.foreign {
		if strings.Contains(modules, "/"+foreign+" ") {
			check(fmt.Errorf("its users would depend on %s:\n%s", foreign, modules))
		}
	}
	fmt.Printf("\n%s@%s from %s, in a clean module: %s", path, version, from, said)
}

func goEnv(name string) string {
	return strings.TrimSpace(string(ok(exec.Command("go", "env", name).Output())))
}
